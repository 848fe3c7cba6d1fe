// Softmax down the columns: a block, or a cluster of them, has a tile, `length` times some neighbouring
// columns, as words in registers. Powers are computed twice: words take half of the registers that a half
// type's powers would. Where tiles come ahead of need blocks stay, and every thread brings its own vectors of
// the next tiles into shared memory, so that nobody waits for others' loads.
#pragma once

#include "packed.cuh"
#include "strided.cuh"

namespace kernels::softmax {

constexpr int kMostPeriod = 8;  // vectors of a tile's row
constexpr int kMostShare = 8;   // blocks of a tile

// All tiles: a row of one is 2^shift vectors, and rows lie `pitch` elements apart in x and `inner` in y.
template <typename T>
struct Tiles {
  const T* x;
  T* y;
  int64_t stride, pitch, out_stride, inner;
  unsigned count;   // of tiles, below 2^31
  unsigned tiles;   // of an outer index
  int rows, shift;  // rows: of a block, where a cluster shares a tile
  int columns;      // softmaxes of a tile: a row of one vector may hold some of each
  int length;       // rows of a tile
  unsigned* taken;  // tiles that were given out, beyond those that all begin with
};

// Rows of less than a vector, which a vector holds a whole number of, as rows of one vector.
inline bool narrow(const Strided& task) {
  const int64_t wide = 16 / task.item_bytes();
  const auto bits = reinterpret_cast<uintptr_t>(task.x) | reinterpret_cast<uintptr_t>(task.y) |
                    static_cast<uintptr_t>(task.stride * task.item_bytes());
  return task.dense() && task.inner < wide && wide % task.inner == 0 &&
         task.length * task.inner % wide == 0 && bits % 16 == 0;
}

inline int log2_from(int64_t least) {
  int shift = 0;
  while (int64_t{1} << shift < least) ++shift;
  return shift;
}

template <typename T>
Tiles<T> tiles_of(const Strided& task, const StreamTile& tile, unsigned* taken) {
  const bool packed = narrow(task);
  const int64_t wide = kPerVector<T>;
  return {static_cast<const T*>(task.x),
          static_cast<T*>(task.y),
          task.stride,
          packed ? wide : task.pitch,
          task.length * task.inner,
          packed ? wide : task.inner,
          static_cast<unsigned>(task.outer * tile.tiles),
          tile.tiles,
          static_cast<int>(ceil_div(tile.rows, tile.share)),
          tile.shift,
          tile.columns,
          tile.rows,
          taken};
}

// A thread's part of a tile: some vectors, of rows 2^(log2 of the threads) / 2^shift apart.
template <typename T, typename P>
struct Place {
  unsigned outer;
  int64_t column;
  int vectors;  // 0: none
  int first;    // row of this block

  __device__ int row(const Tiles<T>& all) const { return threadIdx.x >> all.shift; }
  // `step` is a power of two, which a division would not know.
  static __device__ int ceil_of(int rows, int step) {
    return rows > 0 ? (rows + step - 1) >> (31 - __clz(step)) : 0;
  }
  __device__ Place(const Tiles<T>& all, unsigned tile, unsigned rank) : first(rank * all.rows) {
    const bool there = tile < all.count;
    outer = there ? tile / all.tiles : 0;
    const unsigned chunk = tile - outer * all.tiles;
    const int lane = threadIdx.x & ((1 << all.shift) - 1);
    column = ((static_cast<int64_t>(chunk) << all.shift) + lane) * kPerVector<T>;
    const int step = P::kThreads >> all.shift;
    vectors = there && column < all.inner ? ceil_of(min(all.rows, all.length - first) - row(all), step) : 0;
  }
  __device__ const T* from(const Tiles<T>& all) const {
    return all.x + static_cast<int64_t>(outer) * all.stride + (first + row(all)) * all.pitch + column;
  }
  __device__ T* to(const Tiles<T>& all) const {
    return all.y + static_cast<int64_t>(outer) * all.out_stride + (first + row(all)) * all.inner + column;
  }
  // Whether vector v is one of them.
  __device__ bool has(int v) const { return has(vectors, v); }
  static __device__ bool has(int vectors, int v) { return v < vectors; }
};

// kVectors of a tile are a thread's; kBatch of them come at once, and kAhead batches are on the way, or 0:
// they are loaded when they are needed.
template <int kThreadsOf, int kVectorsOf, int kBatchOf, int kAheadOf, bool kSharedOf, bool kKeepOf>
struct Plan {
  static constexpr int kThreads = kThreadsOf, kVectors = kVectorsOf, kBatch = kBatchOf, kAhead = kAheadOf;
  static constexpr bool kKeep = kKeepOf;      // of bfloat16 powers as float16 where those hold them
  static constexpr bool kShared = kSharedOf;  // clusters of up to kMostShare have a tile
  static constexpr int kDeep = (kAhead + kVectors / kBatch - 1) / (kVectors / kBatch);  // tiles on the way
  static constexpr int kBatches = kVectors / kBatch, kWarps = kThreads / kWarp;
  // By registers for what a thread holds; of blocks of a warp not all 32 that there may be, or those would
  // spill.
  static constexpr int kMost = 8192 / (kThreads * kVectors), kResident = kMost < 24 ? kMost : 24;
  static_assert(kVectors % kBatch == 0, "A tile is whole batches.");

  template <typename T>
  static constexpr int shared_bytes() {
    return kAhead * kBatch * kThreads * 16 +
           kMostPeriod * kPerVector<T> *
               ((kWarps + (kShared ? kMostShare : 0)) * static_cast<int>(sizeof(Partial)) + 16);
  }
};

// A thread's vectors on their way through its places in shared memory, batch after batch, tile after tile.
template <typename T, typename P>
struct Fetcher {
  const Tiles<T>& all;
  uint4* const ring;
  const unsigned rank;
  const T* from;
  int vectors, slot = 0;  // slot: of the batch that is taken next

  // With the batches of tiles[0], tiles[1], ... that are on the way before anything is taken.
  __device__ Fetcher(const Tiles<T>& all, uint4* shared, unsigned rank, const unsigned* tiles)
      : all(all), ring(shared + threadIdx.x), rank(rank) {
#pragma unroll
    for (int q = 0; q < P::kAhead; ++q) ask(q % P::kBatches, tiles[q / P::kBatches]);
  }
  // Batch b of `here`.
  __device__ void take(int b, const Place<T, P>& here, uint4 (&bits)[P::kVectors]) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(P::kAhead > 0 ? P::kAhead - 1 : 0) : "memory");
#pragma unroll
    for (int i = 0; i < P::kBatch; ++i) {
      const int v = b * P::kBatch + i;
      const uint4 read = ring[(slot * P::kBatch + i) * P::kThreads];
      bits[v] = here.has(v) ? read : nothing<T>();
    }
  }
  // Batch b of a tile, which is told with its first, comes to the place of the batch that was taken last.
  __device__ void ask(int b, unsigned tile) {
    if (b == 0) {
      const Place<T, P> place(all, tile, rank);
      from = place.from(all);
      vectors = place.vectors;
    }
    const int64_t step = (P::kThreads >> all.shift) * all.pitch;
#pragma unroll
    for (int i = 0; i < P::kBatch; ++i) {
      copy_later(&ring[(slot * P::kBatch + i) * P::kThreads], from,
                 Place<T, P>::has(vectors, b * P::kBatch + i));
      from += step;  // a multiple of it for each vector would be kept in registers
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    slot = slot + 1 == P::kAhead ? 0 : slot + 1;
  }
};

// In all lanes, over those that are a multiple of `period`, a power of two, apart.
template <int kCount, typename Value, typename Combine>
__device__ __forceinline__ void across(Value (&values)[kCount], int period, Combine combine) {
  for (int distance = kWarp / 2; distance >= period; distance /= 2) {
#pragma unroll
    for (Value& value : values) value = combine(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
}

template <typename T, typename P, int kV>
__device__ __forceinline__ void load_tile(const Tiles<T>& all, const Place<T, P>& here, uint4 (&bits)[kV]) {
  const T* from = here.from(all);
  const int64_t step = (P::kThreads >> all.shift) * all.pitch;
#pragma unroll
  for (int v = 0; v < kV; ++v, from += step) {
    bits[v] = here.has(v) ? __ldg(reinterpret_cast<const uint4*>(from)) : nothing<T>();
  }
}

// A thread's sums of powers over `most`, which are the columns' largest elements. With kKeeps the powers
// themselves take the elements' places, as float16.
template <typename T, bool kKeeps, int kV>
__device__ __forceinline__ void sum_powers(uint4 (&bits)[kV], const uint32_t (&most)[4],
                                           float (&largest)[kPerVector<T>], float (&sums)[kPerVector<T>]) {
  constexpr int kEach = Word<T>::kCount;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    float tops[kEach];
    Word<T>::widen(most[w], 0, tops);
    Curve<T> curves[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      largest[w * kEach + j] = tops[j];
      curves[j] = Curve<T>(tops[j]);
      sums[w * kEach + j] = 0;
    }
#pragma unroll
    for (int v = 0; v < kV; ++v) {
      uint32_t& word = word_of(bits[v], w);
      float values[kEach];
      Word<T>::widen(word, 0, values);
#pragma unroll
      for (int j = 0; j < kEach; ++j) sums[w * kEach + j] += values[j] = curves[j](values[j]);
      if constexpr (kKeeps) word = Word<__half>::narrow(values);
    }
  }
}

// Results of powers that were kept; `parts` has their columns' factors.
template <typename T, typename P, int kV>
__device__ __forceinline__ void store_kept(const Tiles<T>& all, const Place<T, P>& here, const Partial* parts,
                                           uint4 (&bits)[kV]) {
  T* to = here.to(all);
  const int64_t step = (P::kThreads >> all.shift) * all.inner;
  float scales[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) scales[j] = parts[j].sum;
#pragma unroll
  for (int v = 0; v < kV; ++v, to += step) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t& word = word_of(bits[v], w);
      float values[2];
      Word<__half>::widen(word, 0, values);
      word = Word<__nv_bfloat16>::narrow({values[0] * scales[2 * w], values[1] * scales[2 * w + 1]});
    }
    if (here.has(v)) store_whole(to, bits[v]);
  }
}

// Results of the elements, whose columns begin with `first`.
template <typename T, typename P, int kV>
__device__ __forceinline__ void store_powers(const Tiles<T>& all, const Place<T, P>& here,
                                             const Whole<T>* wholes, int first, uint4 (&bits)[kV]) {
  constexpr int kWide = kPerVector<T>, kEach = Word<T>::kCount;
  T* to = here.to(all);
  const int64_t step = (P::kThreads >> all.shift) * all.inner;
  const uint32_t zero = blockDim.y - 1;
  Whole<T> its[kWide];
#pragma unroll
  for (int j = 0; j < kWide; ++j) its[j] = wholes[(first + j) & (all.columns - 1)];
#pragma unroll
  for (int v = 0; v < kV; ++v, to += step) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t& word = word_of(bits[v], w);
      float values[kEach];
      Word<T>::widen(word, zero, values);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const Whole<T>& whole = its[w * kEach + j];
        values[j] = whole.curve(values[j]) * whole.scale;
      }
      word = Word<T>::narrow(values);
    }
    if (here.has(v)) store_whole(to, bits[v]);
  }
}

// From the pairs of warps, in `parts`, to what results are made with; where powers are kept a pair's sum
// becomes its warp's factor. The one who leads tells all which tile was given. Every thread of a block, and
// of its cluster, calls it.
template <typename T, typename P, bool kKeep>
__device__ __forceinline__ void agree_on_columns(const Tiles<T>& all, const Peers<P::kShared>& peers,
                                                 Partial* parts, Whole<T>* wholes, bool leads, unsigned given,
                                                 unsigned& upcoming) {
  const int columns = all.columns, entries = P::kWarps * ((kPerVector<T> << all.shift) / columns);
  const auto finish = [&](int column, const Partial& pair, int lane, int lanes) {
    const float scale = 1 / pair.sum;
    if (lane == 0) wholes[column] = {Curve<T>(pair.largest), scale};
    for (int e = lane; kKeep && e < entries; e += lanes) {
      Partial& part = parts[e * columns + column];
      part.sum = rescaled({part.largest, 1}, pair.largest) * scale;
    }
  };
  if (leads && !P::kShared) upcoming = given;
  __syncthreads();
  if constexpr (P::kShared) {
    Partial* blocks = parts + P::kWarps * kMostPeriod * kPerVector<T>;
    peers.wait();  // until all have read of the tile before
    for (unsigned peer = 0; leads && peer < peers.count; ++peer)
      peers.put(reinterpret_cast<float*>(&upcoming), __uint_as_float(given), peer);
    combine_columns(parts, columns, entries, [&](int column, const Partial& pair, int lane, int lanes) {
      for (unsigned peer = lane; peer < peers.count; peer += lanes)
        peers.put(&blocks[peers.rank * columns + column], pair, peer);
    });
    __syncwarp();
    peers.arrive();
    peers.wait();
    combine_columns(blocks, columns, peers.count, finish);
    __syncwarp();
    peers.arrive();
  } else {
    combine_columns(parts, columns, entries, finish);
  }
  __syncthreads();
}

// grid: as many blocks as are at work at once, or one for each tile.
template <typename T, typename P>
__global__ void __launch_bounds__(P::kThreads, P::kResident)
    stream_kernel(const __grid_constant__ Tiles<T> all) {
  constexpr int kWide = kPerVector<T>, kV = P::kVectors;
  constexpr bool kKeep = P::kKeep && std::is_same_v<T, __nv_bfloat16>;
  extern __shared__ uint4 shared[];
  auto* wholes = reinterpret_cast<Whole<T>*>(shared + P::kAhead * P::kBatch * P::kThreads);
  auto* parts = reinterpret_cast<Partial*>(wholes + kMostPeriod * kWide);
  const int period = 1 << all.shift, first = (threadIdx.x & (period - 1)) * kWide;
  Partial* mine = parts + (threadIdx.x / kWarp << all.shift) * kWide + first;
  const Peers<P::kShared> peers;
  peers.arrive();  // nobody's shared memory may be written before it runs
  __shared__ unsigned upcoming[2];
  const unsigned team = blockIdx.x / peers.count, teams = gridDim.x / peers.count;
  unsigned tiles[P::kDeep + 1], turn = 0;
#pragma unroll
  for (int i = 0; i <= P::kDeep; ++i) tiles[i] = team + i * teams;
  Fetcher<T, P> fetcher(all, shared, peers.rank, tiles);

  for (; tiles[0] < all.count; turn ^= 1) {
    const bool leads = P::kAhead > 0 && peers.rank == 0 && threadIdx.x == 0;
    unsigned given = all.count;
    if (leads) given = atomicAdd(all.taken, 1) + (P::kDeep + 1) * teams;
    const Place<T, P> here(all, tiles[0], peers.rank);
    uint4 bits[kV];
    uint32_t most[4], least[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) most[w] = nothing<T>().x, least[w] = nothing<T>().x ^ 0x80008000u;
    if constexpr (P::kAhead == 0) load_tile(all, here, bits);
#pragma unroll
    for (int b = 0; b < P::kBatches; ++b) {
      if constexpr (P::kAhead > 0) fetcher.take(b, here, bits);
#pragma unroll
      for (int i = 0; i < P::kBatch; ++i) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          most[w] = larger<T>(most[w], word_of(bits[b * P::kBatch + i], w));
          if (kKeep && here.has(b * P::kBatch + i))
            least[w] = smaller(least[w], word_of(bits[b * P::kBatch + i], w));
        }
      }
      if constexpr (P::kAhead > 0) fetcher.ask((b + P::kAhead) % P::kBatches, tiles[P::kDeep]);
    }
    across(most, period, [](uint32_t a, uint32_t b) { return larger<T>(a, b); });

    float largest[kWide], sums[kWide];
    const bool kept = kKeep && __all_sync(kWholeWarp, here.vectors == 0 || within_half(most, least));
    if (kKeep && kept) {
      sum_powers<T, kKeep>(bits, most, largest, sums);
    } else {
      sum_powers<T, false>(bits, most, largest, sums);
    }
    across(sums, period, [](float a, float b) { return a + b; });
    if (threadIdx.x % kWarp < period) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) mine[j] = {largest[j], sums[j]};
    }
    agree_on_columns<T, P, kKeep>(all, peers, parts, wholes, leads, given, upcoming[turn]);
    if (kKeep && kept) {
      store_kept(all, here, mine, bits);
    } else {
      store_powers(all, here, wholes, first, bits);
    }
#pragma unroll
    for (int i = 0; i < P::kDeep; ++i) tiles[i] = tiles[i + 1];
    tiles[P::kDeep] = P::kAhead > 0 ? upcoming[turn] : all.count;
  }
  peers.wait();
}

}  // namespace kernels::softmax
