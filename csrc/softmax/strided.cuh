// Softmax down the columns of [outer, length, inner]: a block or a cluster of them holds a tile, all of
// `length` times some neighbouring columns, in registers, so memory is read once. A thread has the same few
// columns in all its cells; what threads tell each other is a pair for each column.
#pragma once

#include "cluster.cuh"
#include "rows.cuh"
#include "strided.h"

namespace kernels::softmax {

constexpr int kSharedColumns = 64;    // most columns of a tile that a cluster shares
constexpr int kSharingThreads = 128;  // least of a block of such a cluster

template <typename T>
struct Columns {
  const T* x;
  T* y;
  int64_t outer, length, inner, stride, pitch;
  Tile tile;
};

// What one access moves: kWide neighbouring elements as 32-bit words, so that the maxima of two half types
// are found at once. A single half type has -inf beside it.
template <typename T, int kWide>
struct Cell {
  static constexpr int kBytes = kWide * sizeof(T), kWords = kBytes < 4 ? 1 : kBytes / 4;
  static_assert(kBytes == 16 || kBytes == 4 || kBytes == 2, "A cell is 16, 4 or 2 bytes.");
  uint32_t words[kWords];

  static __device__ Cell of(const uint4& bits) {
    static_assert(kBytes == 16, "A vector of a row is a cell of 16 bytes.");
    return {bits.x, bits.y, bits.z, bits.w};
  }
  static __device__ Cell nothing() {
    if constexpr (kBytes == 16) {
      return of(softmax::nothing<T>());
    } else {
      return {softmax::nothing<T>().x};
    }
  }
  // Where `there` does not hold nothing is read. No branch, so that many loads are in flight.
  static __device__ Cell load(const T* from, bool there) {
    if constexpr (kBytes == 16) {
      return of(there ? __ldg(reinterpret_cast<const uint4*>(from)) : softmax::nothing<T>());
    } else if constexpr (kBytes == 4) {
      return {there ? __ldg(reinterpret_cast<const uint32_t*>(from)) : softmax::nothing<T>().x};
    } else {
      const uint32_t none = softmax::nothing<T>().x;
      const uint32_t bits = there ? __ldg(reinterpret_cast<const unsigned short*>(from)) : none & 0xffff;
      return {(none & 0xffff0000) | bits};
    }
  }
  __device__ void widen(float (&values)[kWide]) const {
    float all[kPerVector<T>];
    if constexpr (kBytes == 16) {
      unpack<T>(uint4{words[0], words[1], words[2], words[3]}, all);
    } else {
      unpack<T>(uint4{words[0], 0, 0, 0}, all);
    }
#pragma unroll
    for (int j = 0; j < kWide; ++j) values[j] = all[j];
  }
  static __device__ void store(T* to, const float (&values)[kWide]) {
    float all[kPerVector<T>] = {};
#pragma unroll
    for (int j = 0; j < kWide; ++j) all[j] = values[j];
    const uint4 bits = pack<T>(all);
    if constexpr (kBytes == 16) *reinterpret_cast<uint4*>(to) = bits;
    if constexpr (kBytes == 4) *reinterpret_cast<uint32_t*>(to) = bits.x;
    if constexpr (kBytes == 2) *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(bits.x);
  }
};

// The larger of what two words hold; NaN is ignored.
template <typename T>
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
  if constexpr (std::is_same_v<T, float>) {
    return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 most =
        __hmax2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const uint32_t&>(most);
  } else {
    const __half2 most = __hmax2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const uint32_t&>(most);
  }
}

// Combines what lanes l, l + period, l + 2 period, ... of a warp hold; lanes below `period` get it.
template <int kCount, typename Value, typename Combine>
__device__ __forceinline__ void to_low_lanes(Value (&values)[kCount], int period, Combine combine) {
  const int lane = threadIdx.x % kWarp;
  int distance = period, live = kWarp;
  while (2 * distance < kWarp) distance *= 2;
  for (; distance < kWarp && distance >= period; distance /= 2) {
#pragma unroll
    for (Value& value : values) {
      const Value other = __shfl_down_sync(kWholeWarp, value, distance);
      if (lane + distance < live) value = combine(value, other);
    }
    live = distance;
    if (distance == period) break;
  }
}

// The same in all lanes.
template <int kCount, typename Value, typename Combine>
__device__ __forceinline__ void in_all_lanes(Value (&values)[kCount], int period, Combine combine) {
  if (period >= kWarp) return;
  to_low_lanes(values, period, combine);
#pragma unroll
  for (Value& value : values) value = __shfl_sync(kWholeWarp, value, threadIdx.x % kWarp % period);
}

// For each of `columns` the pair of its `entries`: entry e of column c is table[e * columns + c]. Up to 16
// lanes share a column, and all of them call put(c, pair, lane, lanes), which may write to the column's own
// entries. Whole blocks call it.
template <typename Put>
__device__ __forceinline__ void combine_columns(const Partial* table, int columns, int entries, Put put) {
  int shift = 0;
  while (1 << shift < entries && shift < 4) ++shift;
  const int lanes = 1 << shift, lane = threadIdx.x & (lanes - 1), step = blockDim.x >> shift;
  for (int base = 0; base < columns; base += step) {
    const int column = base + (threadIdx.x >> shift);
    const int count = column < columns ? entries : 0;
    Partial mine{-INFINITY, 0};
    for (int e = lane; e < count; e += lanes)
      mine.largest = fmaxf(mine.largest, table[e * columns + column].largest);
    for (int d = lanes / 2; d > 0; d /= 2) {
      mine.largest = fmaxf(mine.largest, __shfl_xor_sync(kWholeWarp, mine.largest, d));
    }
    for (int e = lane; e < count; e += lanes) mine.sum += rescaled(table[e * columns + column], mine.largest);
    for (int d = lanes / 2; d > 0; d /= 2) mine.sum += __shfl_xor_sync(kWholeWarp, mine.sum, d);
    __syncwarp();
    if (column < columns) put(column, mine, lane, lanes);
  }
}

// Where a block's threads put what they know of their columns, and find what the tile came to.
template <int kThreads, int kWide>
struct Exchange {
  static constexpr int kWarps = kThreads / kWarp;
  Partial
      parts[kThreads * kWide];  // [copies][period][kWide], and then the largest and 1 / sum of each column
  Partial blocks[kThreads < kSharingThreads ? 1 : kMaxCluster * kSharedColumns];

  // Lanes of a warp that have the same columns share an entry.
  static __device__ int copies(const Tile& tile) {
    return tile.period <= kWarp ? kWarps : tile.threads / tile.period;
  }
  static __device__ int copy(const Tile& tile) {
    return tile.period <= kWarp ? threadIdx.x / kWarp : threadIdx.x / tile.period;
  }
  static __device__ bool writes(const Tile& tile) {
    return tile.period <= kWarp ? threadIdx.x % kWarp < tile.period : threadIdx.x < tile.threads;
  }
  static __device__ int first(const Tile& tile) { return threadIdx.x % tile.period * kWide; }

  __device__ Partial* mine(const Tile& tile) {
    return parts + copy(tile) * tile.period * kWide + first(tile);
  }
};

// Makes of the threads' pairs, in exchange.parts, the columns'. Every thread of the block, and of its
// cluster, calls it.
template <int kThreads, int kWide>
__device__ __forceinline__ void agree(Exchange<kThreads, kWide>& exchange, const Tile& tile,
                                      const Peers<true>& peers) {
  const auto finish = [&](int column, const Partial& pair, int lane, int) {
    if (lane == 0) exchange.parts[column] = {pair.largest, 1 / pair.sum};
  };
  __syncthreads();
  const int columns = tile.columns;
  const int entries = exchange.copies(tile) * (tile.period * kWide / columns);
  if (peers.count == 1) {
    combine_columns(exchange.parts, columns, entries, finish);
  } else {
    peers.wait();
    const auto tell = [&](int column, const Partial& pair, int lane, int lanes) {
      for (unsigned peer = lane; peer < peers.count; peer += lanes) {
        peers.put(&exchange.blocks[peers.rank * columns + column], pair, peer);
      }
    };
    combine_columns(exchange.parts, columns, entries, tell);
    __syncwarp();
    peers.arrive();
    peers.wait();
    combine_columns(exchange.blocks, columns, peers.count, finish);
  }
  __syncthreads();
}

// A thread's cells of a tile, where a tile is what an outer index has: one contiguous row. Sizes stay in the
// constant memory of the launch, and addresses are computed again for the result: registers are full of
// elements.
template <typename T, int kThreads, int kCells>
struct FlatCells {
  static constexpr int kWide = kPerVector<T>;
  const Columns<T>& all;
  Row<T, false> row;
  unsigned rank;

  __device__ FlatCells(const Columns<T>& all, int64_t outer, unsigned, unsigned rank)
      : all(all),
        row({all.x, all.y, all.outer, all.length * all.inner, all.stride, false}, outer),
        rank(rank) {}
  // A shifted row is read twice over, so fewer cells at once.
  __device__ void load(Cell<T, kWide> (&cells)[kCells]) const {
    if (row.shift == 0) {
      load_some<0, kCells>(cells);
    } else {
      constexpr int kQuarter = kCells / 4;
      load_some<0, kQuarter>(cells);
      load_some<kQuarter, kQuarter>(cells);
      load_some<2 * kQuarter, kQuarter>(cells);
      load_some<3 * kQuarter, kQuarter>(cells);
    }
  }
  __device__ void store(const float (&values)[kCells][kWide]) const {
    const int end = row.vectors(), step = all.tile.threads, start = first();
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (start + i * step < end) row.store(start + i * step, values[i]);
    }
  }

 private:
  __device__ int first() const {
    const bool takes_part = threadIdx.x < all.tile.threads;
    return takes_part ? rank * all.tile.threads * kCells + threadIdx.x : row.vectors();
  }
  template <int kFrom, int kCount>
  __device__ void load_some(Cell<T, kWide> (&cells)[kCells]) const {
    uint4 bits[kCount];
    row.load(first() + kFrom * all.tile.threads, all.tile.threads, bits);
#pragma unroll
    for (int i = 0; i < kCount; ++i) cells[kFrom + i] = Cell<T, kWide>::of(bits[i]);
  }
};

// The same where a tile is a chunk of columns. Threads down a column are kThreads / period rows apart.
template <typename T, int kThreads, int kCells, int kW>
struct ChunkCells {
  static constexpr int kWide = kW;
  const Columns<T>& all;
  int64_t outer;
  unsigned chunk, rank;

  __device__ ChunkCells(const Columns<T>& all, int64_t outer, unsigned chunk, unsigned rank)
      : all(all), outer(outer), chunk(chunk), rank(rank) {}
  __device__ int step() const { return kThreads >> all.tile.shift; }
  __device__ int row() const { return rank * step() * kCells + (threadIdx.x >> all.tile.shift); }
  __device__ int64_t column() const {
    return static_cast<int64_t>(chunk) * all.tile.columns + (threadIdx.x & (all.tile.period - 1)) * kWide;
  }
  __device__ int rows() const { return column() < all.inner ? static_cast<int>(all.length) : 0; }
  __device__ void load(Cell<T, kWide> (&cells)[kCells]) const {
    const T* from = all.x + outer * all.stride + row() * all.pitch + column();
    const int first = row(), end = rows();
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      cells[i] = Cell<T, kWide>::load(from + i * step() * all.pitch, first + i * step() < end);
    }
  }
  __device__ void store(const float (&values)[kCells][kWide]) const {
    T* to = all.y + (outer * all.length + row()) * all.inner + column();
    const int first = row(), end = rows();
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (first + i * step() >= end) continue;
      Cell<T, kWide>::store(to + i * step() * all.inner, values[i]);
    }
  }
};

// What an SM holds, in half of its registers; the compiler for older ones needs a few more of them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kHeld = 28672;
#else
constexpr int kHeld = 32768;
#endif

// grid: outer * tiles * cluster.
template <typename T, int kThreads, int kCells, typename Cells>
__global__ void __launch_bounds__(kThreads, kHeld / (kThreads * kCells * Cells::kWide))
    tile_kernel(const __grid_constant__ Columns<T> all) {
  constexpr int kWide = Cells::kWide;
  using Each = Cell<T, kWide>;
  __shared__ Exchange<kThreads, kWide> exchange;
  const Peers<true> peers;
  if (peers.count > 1) peers.arrive();  // nobody's shared memory may be written before it runs
  const unsigned tile = blockIdx.x / peers.count, outer = tile / all.tile.tiles;
  const Cells mine(all, outer, tile - outer * all.tile.tiles, peers.rank);

  Each cells[kCells], most = Each::nothing();
  mine.load(cells);
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
#pragma unroll
    for (int w = 0; w < Each::kWords; ++w) most.words[w] = larger<T>(most.words[w], cells[i].words[w]);
  }
  in_all_lanes(most.words, all.tile.period, [](uint32_t a, uint32_t b) { return larger<T>(a, b); });
  float largest[kWide], sums[kWide], values[kCells][kWide];
  most.widen(largest);
#pragma unroll
  for (int i = 0; i < kCells; ++i) cells[i].widen(values[i]);
#pragma unroll
  for (int j = 0; j < kWide; ++j) {
    const Power power(largest[j]);
    sums[j] = 0;
#pragma unroll
    for (int i = 0; i < kCells; ++i) sums[j] += values[i][j] = power(values[i][j]);
  }
  if (all.tile.period < kWarp) to_low_lanes(sums, all.tile.period, [](float a, float b) { return a + b; });
  Partial* slots = exchange.mine(all.tile);
  if (exchange.writes(all.tile)) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) slots[j] = {largest[j], sums[j]};
  }
  agree(exchange, all.tile, peers);

  most.widen(largest);  // again: as words they took fewer registers meanwhile
  int column = exchange.first(all.tile) % all.tile.columns;
#pragma unroll
  for (int j = 0; j < kWide; ++j) {
    const Partial whole = exchange.parts[column];
    const float scale = rescaled({largest[j], 1}, whole.largest) * whole.sum;
#pragma unroll
    for (int i = 0; i < kCells; ++i) values[i][j] *= scale;
    column = column + 1 == all.tile.columns ? 0 : column + 1;
  }
  mine.store(values);
}

}  // namespace kernels::softmax
