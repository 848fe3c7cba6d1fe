// Softmax down columns whose rows start anywhere, by blocks that stay: 16-byte pieces of a tile come into
// shared memory, whichever element they begin with, and a thread takes single elements of one column from
// there into words in registers. The pieces of the next tile come while this one is computed.
#pragma once

#include "strided_stream.cuh"

namespace kernels::softmax {

// All tiles: rows of `columns` elements, or where they are all columns of a dense x, one row of everything.
template <typename T>
struct Loose {
  const T* x;
  T* y;
  int64_t stride, pitch, inner;
  unsigned count, tiles;  // of all, below 2^31, and of an outer index
  int rows, columns;
  int pieces;      // of a row at most
  unsigned magic;  // floor(p / pieces) is p * magic >> 32
};

template <int kThreadsOf, int kEachOf, int kResidentOf, bool kFlatOf>
struct LoosePlan {
  static constexpr int kThreads = kThreadsOf, kEach = kEachOf,  // elements of a thread
      kResident = kResidentOf;
  static constexpr bool kFlat = kFlatOf;
};

// One tile, and what a thread has of it: elements of rows first, first + step, ...
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

// The bits of an element of shared memory where `there` holds, else `none`. No branch.
template <typename T>
__device__ __forceinline__ uint32_t element_at(unsigned address, bool there, uint32_t none) {
  uint32_t bits = none;
  if constexpr (sizeof(T) == 4) {
    asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there ld.shared.u32 %0, [%1];\n}"
                 : "+r"(bits)
                 : "r"(address), "r"(static_cast<int>(there)));
  } else {
    asm volatile(
        "{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n"
        "@there ld.shared.u16 %0, [%1];\n}"
        : "+r"(bits)
        : "r"(address), "r"(static_cast<int>(there)));
  }
  return bits;
}

template <typename T>
__device__ __forceinline__ void store_element(T* to, float value, bool there) {
  const uint32_t bits = pack<T>({value}).x;
  if constexpr (sizeof(T) == 4) {
    asm volatile(
        "{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there st.global.b32 [%0], %1;\n}" ::"l"(to),
        "r"(bits), "r"(static_cast<int>(there))
        : "memory");
  } else {
    asm volatile(
        "{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there st.global.b16 [%0], %1;\n}" ::"l"(to),
        "h"(static_cast<unsigned short>(bits)), "r"(static_cast<int>(there))
        : "memory");
  }
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

template <typename T, typename P>
__global__ void __launch_bounds__(P::kThreads, P::kResident)
    elements_kernel(const __grid_constant__ Loose<T> all) {
  constexpr int kPer = Word<T>::kCount, kWords = P::kEach / kPer, kStep = 4;
  extern __shared__ uint4 shared[];
  __shared__ Partial parts[P::kThreads];
  __shared__ Whole<T> wholes[P::kThreads];
  const int apart = P::kThreads / all.columns,
            active = apart * all.columns;  // rows of a step, threads at work
  const int first = threadIdx.x / all.columns, column = threadIdx.x - first * all.columns;
  const int most_of = threadIdx.x < active ? max(0, (all.rows - first + apart - 1) / apart) : 0;
  const auto base = static_cast<unsigned>(__cvta_generic_to_shared(shared));

  ask_for(all, LooseTile<T, P>(all, blockIdx.x), shared);
  for (unsigned tile = blockIdx.x; tile < all.count; tile += gridDim.x) {
    const LooseTile<T, P> here(all, tile);
    const int mine = column < here.columns ? most_of : 0;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    uint32_t words[kWords], most = nothing<T>().x;
    const auto start = static_cast<unsigned>(reinterpret_cast<uintptr_t>(here.x));
    const unsigned turn = static_cast<unsigned>(apart * all.pitch * sizeof(T));
    unsigned shift = start + static_cast<unsigned>(first * all.pitch * sizeof(T));
    unsigned at = base + (P::kFlat ? (start & 15) + threadIdx.x * sizeof(T)
                                   : static_cast<unsigned>(first * all.pieces * 16 + column * sizeof(T)));
    const unsigned step = P::kFlat ? active * sizeof(T) : apart * all.pieces * 16;
#pragma unroll
    for (int from = 0; from < kWords; from += kStep) {
      if (from * kPer * apart < all.rows) {
#pragma unroll
        for (int w = from; w < from + kStep; ++w) {
          uint32_t some[kPer];
#pragma unroll
          for (int j = 0; j < kPer; ++j) {
            some[j] = element_at<T>(P::kFlat ? at : at + (shift & 15), w * kPer + j < mine, nothing<T>().x);
            at += step, shift += turn;
          }
          words[w] = kPer == 1 ? some[0] : __byte_perm(some[0], some[kPer - 1], 0x5410);
          most = larger<T>(most, words[w]);
        }
      }
    }
    __syncthreads();
    ask_for(all, LooseTile<T, P>(all, tile + gridDim.x), shared);

    float tops[kPer], sum = 0;
    Word<T>::widen(most, 0, tops);
    const float largest = fmaxf(tops[0], tops[kPer - 1]);
    const Curve<T> curve(largest);
#pragma unroll
    for (int from = 0; from < kWords; from += kStep) {
      if (from * kPer * apart < all.rows) {
#pragma unroll
        for (int w = from; w < from + kStep; ++w) {
          float values[kPer];
          Word<T>::widen(words[w], 0, values);
#pragma unroll
          for (float value : values) sum += curve(value);
        }
      }
    }
    parts[threadIdx.x] = {largest, sum};
    __syncthreads();
    combine_columns(parts, all.columns, apart, [&](int c, const Partial& pair, int lane, int) {
      if (lane == 0) wholes[c] = {Curve<T>(pair.largest), 1 / pair.sum};
    });
    __syncthreads();
    const Whole<T> whole = wholes[column];
    T* to = here.y + (P::kFlat ? static_cast<int64_t>(threadIdx.x) : first * all.inner + column);
    const int64_t down = P::kFlat ? active : apart * all.inner;
    const uint32_t zero = blockDim.y - 1;
#pragma unroll
    for (int from = 0; from < kWords; from += kStep) {
      if (from * kPer * apart < all.rows) {
#pragma unroll
        for (int w = from; w < from + kStep; ++w) {
          float values[kPer];
          Word<T>::widen(words[w], zero, values);
#pragma unroll
          for (int j = 0; j < kPer; ++j, to += down) {
            store_element(to, whole.curve(values[j]) * whole.scale, w * kPer + j < mine);
          }
        }
      }
    }
  }
}

}  // namespace kernels::softmax
