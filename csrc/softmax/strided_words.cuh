// Softmax down columns whose rows start anywhere, by blocks that stay: 16-byte pieces of a tile come into
// shared memory, whichever element they begin with, and a thread takes words of 4 bytes from there, on the
// boundaries that they have in memory: always of the same one or two columns. The pieces of the next tile
// come meanwhile.
#pragma once

#include "strided_stream.cuh"

namespace kernels::softmax {

// All tiles: rows of `columns` elements, or where a tile is all of a dense outer index, one row of all that.
// Rows of x and of y have the same boundaries of 4 bytes.
template <typename T>
struct Loose {
  const T* x;
  T* y;
  int64_t stride, pitch, inner;
  unsigned count, tiles;  // of all, below 2^31, and of an outer index
  int rows, columns;
  int slots;   // words of a row, or where a tile is one row, of as many as repeat the columns
  int apart;   // rows, or repetitions, that a block's threads take at once; even where boundaries alternate
  int pieces;  // of a row at most
  unsigned magic;  // floor(p / pieces) is p * magic >> 32
};

template <int kThreadsOf, int kWordsOf, int kResidentOf, bool kFlatOf>
struct LoosePlan {
  static constexpr int kThreads = kThreadsOf, kWords = kWordsOf, kResident = kResidentOf;
  static constexpr bool kFlat = kFlatOf;
};

template <typename T, typename P>
struct LooseTile {
  const T* x;
  T* y;
  int columns;  // that are there
  bool there;

  __device__ LooseTile(const Loose<T>& all, unsigned tile) {
    there = tile < all.count;
    const unsigned outer = there ? tile / all.tiles : 0, chunk = there ? tile - outer * all.tiles : 0;
    const int64_t column = static_cast<int64_t>(chunk) * all.columns;
    columns = static_cast<int>(min(static_cast<int64_t>(all.columns), all.inner - column));
    x = all.x + outer * all.stride + column;
    y = all.y + static_cast<int64_t>(outer) * all.rows * all.inner + column;
  }
};

__device__ __forceinline__ uint32_t word_at(unsigned address, bool there, uint32_t none) {
  uint32_t bits = none;
  asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there ld.shared.u32 %0, [%1];\n}"
               : "+r"(bits)
               : "r"(address), "r"(static_cast<int>(there)));
  return bits;
}

__device__ __forceinline__ void store_word(void* to, uint32_t bits, bool there) {
  asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there st.global.b32 [%0], %1;\n}" ::"l"(to),
               "r"(bits), "r"(static_cast<int>(there))
               : "memory");
}

__device__ __forceinline__ void store_half(void* to, uint32_t bits, bool there) {
  asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there st.global.b16 [%0], %1;\n}" ::"l"(to),
               "h"(static_cast<unsigned short>(bits)), "r"(static_cast<int>(there))
               : "memory");
}

// Asks for all pieces that hold some of the tile.
template <typename T, typename P>
__device__ __forceinline__ void ask_for(const Loose<T>& all, const LooseTile<T, P>& tile, uint4* shared) {
  if (tile.there) {
    const int count = P::kFlat ? all.pieces : all.rows * all.pieces;
    const int64_t bytes =
        (P::kFlat ? static_cast<int64_t>(all.rows) * tile.columns : tile.columns) * sizeof(T);
    for (int p = threadIdx.x; p < count; p += P::kThreads) {
      const int row = P::kFlat ? 0 : __umulhi(p, all.magic), piece = p - row * all.pieces;
      const auto start = reinterpret_cast<uintptr_t>(tile.x + row * all.pitch);
      const uintptr_t from = start / 16 * 16 + piece * 16;
      copy_later(shared + p, reinterpret_cast<const void*>(from), from < start + bytes);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// What a thread has of a tile: words of its columns, from address `at` of shared memory and `to` of y on.
// Half types only: what lies beside a word's column is not of the tile.
template <typename T, typename P>
struct Part {
  unsigned at, step, shift = 0, turn = 0;  // shift: of a row's boundaries, and what it changes by
  T* to;
  int64_t down;
  int words;                // how many
  int column;               // of their first element; where a tile is one row, from -1 on
  unsigned order = 0x3210;  // bytes of a word, where from 4 on those of -inf are: only one may be of the tile
  bool single = false;      // only one column, which `order` makes the first
  bool lead = false,
       tail = false;  // flat: of the first word the upper half is in the tile, of the last the lower

  __device__ Part(const Loose<T>& all, const LooseTile<T, P>& tile, unsigned shared) {
    constexpr int kPer = Word<T>::kCount;
    const auto start = reinterpret_cast<uintptr_t>(tile.x);
    const int active = all.apart * all.slots;
    if constexpr (P::kFlat) {
      const int odd = start / 2 % kPer,
                total = all.rows * all.columns + odd;  // elements from the first word on
      const int thread = threadIdx.x, count = ceil_of(total, kPer);
      column = thread * kPer - odd;
      words = thread < active ? ceil_of(count - thread, active) : 0;
      lead = odd && thread == 0;
      tail = total % kPer && words > 0 && thread + (words - 1) * active == count - 1;
      at = shared + static_cast<unsigned>(start % 16) + column * static_cast<int>(sizeof(T));
      step = active * 4;
      to = tile.y + column;
      down = active * kPer;
    } else {
      const int first = threadIdx.x / all.slots, slot = threadIdx.x - first * all.slots;
      const auto row = start + first * all.pitch * sizeof(T);
      column = slot * kPer - row / 2 % kPer;
      at = shared + first * all.pieces * 16 + column * static_cast<int>(sizeof(T));
      const bool low = column >= 0 && column < tile.columns, high = kPer > 1 && column + 1 < tile.columns;
      words = first < all.apart && (low || high) ? ceil_of(all.rows - first, all.apart) : 0;
      single = kPer > 1 && low != high;
      if (single) order = low ? 0x7610 : 0x7632;
      if (single && !low) ++column;
      shift = static_cast<unsigned>(row);
      step = all.apart * all.pieces * 16;
      turn = static_cast<unsigned>(all.apart * all.pitch * sizeof(T));
      to = tile.y + first * all.inner + column;
      down = all.apart * all.inner;
    }
  }
  static __device__ int ceil_of(int count, int step) { return count > 0 ? (count + step - 1) / step : 0; }
};

// What came along before the first and after the last element of a tile that is one row becomes -inf, by
// those who asked for it.
template <typename T, typename P>
__device__ __forceinline__ void cover_ends(const Loose<T>& all, const LooseTile<T, P>& tile, T* shared) {
  const int before = static_cast<int>(reinterpret_cast<uintptr_t>(tile.x) % 16 / sizeof(T));
  const int after = before + all.rows * all.columns;
  const T none = convert<T>(-INFINITY);
  if (threadIdx.x == 0 && before % 2) shared[before - 1] = none;
  if (threadIdx.x == after * sizeof(T) / 16 % P::kThreads && after % 2) shared[after] = none;
}

template <typename T, typename P>
__global__ void __launch_bounds__(P::kThreads, P::kResident)
    words_kernel(const __grid_constant__ Loose<T> all) {
  constexpr int kPer = Word<T>::kCount, kWords = P::kWords, kStep = 4;
  extern __shared__ uint4 shared[];
  __shared__ Partial parts[P::kThreads * kPer];
  __shared__ Whole<T> wholes[P::kThreads];
  const auto base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int columns = all.columns, most_words = P::kFlat ? (all.rows * columns + kPer * 2) / kPer : all.rows;
  const int share = P::kFlat ? all.apart * all.slots : all.apart;  // of them, that a step takes

  ask_for(all, LooseTile<T, P>(all, blockIdx.x), shared);
  for (unsigned tile = blockIdx.x; tile < all.count; tile += gridDim.x) {
    const LooseTile<T, P> here(all, tile);
    const Part<T, P> part(all, here, base);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    if (P::kFlat && kPer > 1) cover_ends(all, here, reinterpret_cast<T*>(shared));
    __syncthreads();
    uint32_t words[kWords], most = nothing<T>().x;
    const uint32_t none = nothing<T>().x;
    unsigned at = part.at, shift = part.shift;
#pragma unroll
    for (int from = 0; from < kWords; from += kStep) {
      if (from * share < most_words) {
#pragma unroll
        for (int w = from; w < from + kStep; ++w) {
          words[w] = word_at(P::kFlat ? at : at + (shift & 15), w < part.words, none);
          if (kPer > 1 && !P::kFlat) words[w] = __byte_perm(words[w], none, part.order);
          most = larger<T>(most, words[w]);
          at += part.step, shift += part.turn;
        }
      }
    }
    __syncthreads();
    ask_for(all, LooseTile<T, P>(all, tile + gridDim.x), shared);

    float largest[kPer], sums[kPer] = {};
    Word<T>::widen(most, 0, largest);
    Curve<T> curves[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) curves[j] = Curve<T>(largest[j]);
#pragma unroll
    for (int from = 0; from < kWords; from += kStep) {
      if (from * share < most_words) {
#pragma unroll
        for (int w = from; w < from + kStep; ++w) {
          float values[kPer];
          Word<T>::widen(words[w], 0, values);
#pragma unroll
          for (int j = 0; j < kPer; ++j) sums[j] += curves[j](values[j]);
        }
      }
    }
    // Entry (first, column) of the table has one owner. A word before the first belongs to the last column.
    Whole<T> its[kPer];
    int place[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      place[j] = -1;
      if constexpr (P::kFlat) {
        const int active = all.apart * all.slots * kPer, element = part.column + j;
        if (threadIdx.x < all.apart * all.slots) place[j] = element < 0 ? element + active : element;
      } else {
        const bool there = part.words > 0 && !(part.single && j > 0);
        if (there) place[j] = threadIdx.x / all.slots * columns + part.column + j;
      }
      if (place[j] >= 0) parts[place[j]] = {largest[j], sums[j]};
    }
    __syncthreads();
    combine_columns(parts, columns, P::kFlat ? share * kPer / columns : share,
                    [&](int c, const Partial& pair, int lane, int) {
                      if (lane == 0) wholes[c] = {Curve<T>(pair.largest), 1 / pair.sum};
                    });
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kPer; ++j) its[j] = wholes[max(place[j], 0) % columns];
    T* to = part.to;
    const int words_of = part.single ? 0 : part.words - part.tail, halves = part.single ? part.words : 0;
    uint32_t last = 0;
    const uint32_t zero = blockDim.y - 1;
#pragma unroll
    for (int from = 0; from < kWords; from += kStep) {
      if (from * share < most_words) {
#pragma unroll
        for (int w = from; w < from + kStep; ++w, to += part.down) {
          float values[kPer];
          Word<T>::widen(words[w], zero, values);
#pragma unroll
          for (int j = 0; j < kPer; ++j) values[j] = its[j].curve(values[j]) * its[j].scale;
          const uint32_t bits = Word<T>::narrow(values);
          store_word(to, bits, w < words_of && !(w == 0 && part.lead));
          if (kPer > 1 && !P::kFlat) store_half(to, bits, w < halves);
          if (kPer > 1 && P::kFlat && w == 0) store_half(to + 1, bits >> 16, part.lead);
          if (kPer > 1 && P::kFlat) last = w == words_of ? bits : last;
        }
      }
    }
    if (kPer > 1 && P::kFlat) store_half(part.to + words_of * part.down, last, part.tail);
  }
}

}  // namespace kernels::softmax
