// How slices of coordinates come into shared memory for register.cu.
#pragma once

#include <algorithm>

#include "vectors.cuh"

namespace kernels {

constexpr int kRegisterThreads = 256;
constexpr int kSide = 16;           // threads along each side of a tile
constexpr int kSlice = 32;          // coordinates
constexpr int kPitch = kSlice + 4;  // of a row: eight neighbouring rows meet 32 banks
constexpr int kApart = 4 * kSide;   // points between a thread's groups of four

using Rows = float (*)[kPitch];

// The row of shared memory that holds a point of the tile: points four apart are neighbours, since a thread
// has four in a row.
__host__ __device__ constexpr int row_of(int point) {
  return point / kApart * kApart + point % 4 * kSide + point % kApart / 4;
}

template <int kBytes>
__device__ __forceinline__ void copy_async(float* to, const float* from, bool exists) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(kBytes),
               "r"(exists ? kBytes : 0));  // what does not exist is 0
}

template <int kKeep>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kKeep) : "memory");
}

// Four coordinates of a point where no vector of memory holds them, or where they must be widened.
__device__ __forceinline__ void bring_four(float* to, const void* x, int64_t at, int left, bool packed,
                                           Dtype dtype) {
  if (dtype == Dtype::kFloat32) {
    const float* from = static_cast<const float*>(x) + at;
#pragma unroll
    for (int v = 0; v < 4; ++v) copy_async<4>(to + v, from + (v < left ? v : 0), v < left);
    return;
  }
  float values[4];
  if (dtype == Dtype::kBfloat16) {
    load(values, static_cast<const __nv_bfloat16*>(x) + at, left, packed);
  } else {
    load(values, static_cast<const __half*>(x) + at, left, packed);
  }
  *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
}

// The four coordinates and the first point that a thread brings of each slice.
__device__ __forceinline__ int brought_coordinate() { return 4 * (threadIdx.x % (kSlice / 4)); }
__device__ __forceinline__ int brought_point() { return threadIdx.x / (kSlice / 4); }

// A slice of coordinates of kPoints points -> rows. `at`: this thread's first element; `left`, `count`:
// coordinates and points from there. What is past either end is 0: points are not stored, and coordinates add
// nothing to any norm. kPlain: float32 in whole vectors.
template <int kPoints, bool kPlain>
__device__ __forceinline__ void bring(Rows rows, const void* x, int64_t at, int left, int count, int d,
                                      bool packed, Dtype dtype) {
  constexpr int kBetween = kRegisterThreads / (kSlice / 4);    // a thread's points
  static_assert(kApart % kBetween == 0 && kBetween % 4 == 0);  // the compiler then knows their rows
  if constexpr (kPlain) {
    const float* from = static_cast<const float*>(x) + at;
    float* to = rows[row_of(brought_point())] + brought_coordinate();
#pragma unroll
    for (int i = 0; i < kPoints; i += kBetween, from += int64_t{kBetween} * d) {
      copy_async<16>(to + row_of(i) * kPitch, from, left > 0 && i < count);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kPoints; i += kBetween) {
      const bool exists = left > 0 && i < count;
      bring_four(rows[row_of(brought_point() + i)] + brought_coordinate(), x,
                 exists ? at + int64_t{i} * d : 0, exists ? left : 0, packed, dtype);
    }
  }
}

}  // namespace kernels
