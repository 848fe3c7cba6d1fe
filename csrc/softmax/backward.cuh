// Rows of the upstream gradient g and of the output y as pairs of 16-byte vectors, and the one sum that joins
// them. No torch here.
#pragma once

#include "backward.h"
#include "cluster.cuh"
#include "rows.cuh"

namespace kernels::softmax {

template <typename T>
struct GradRows {
  Rows<T> g_to_dx;
  const T* y;
};

// Calls `launch(GradRows<T>)` with the T that the task's dtype names; others are an invalid value.
template <typename Launch>
cudaError_t with_grad_rows(const GradTask& task, Launch&& launch) {
  return with_rows(task.g_to_dx, [&](const auto& rows) {
    using T = std::remove_pointer_t<decltype(rows.y)>;
    return launch(GradRows<T>{rows, static_cast<const T*>(task.y)});
  });
}

// The products of some of a row, summed. Four sums, since one would wait for itself.
template <typename T, int kCount>
__device__ __forceinline__ float dot(const uint4 (&g_bits)[kCount], const uint4 (&y_bits)[kCount]) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float g[kPerVector<T>], y[kPerVector<T>];
    unpack<T>(g_bits[i], g);
    unpack<T>(y_bits[i], y);
#pragma unroll
    for (int e = 0; e < kPerVector<T>; ++e) sums[e % 4] = fmaf(g[e], y[e], sums[e % 4]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Makes the compiler unpack 16-bit elements once more, as it would not: what it unpacked for the sum takes
// twice the registers, and would wait in them for the exchange.
template <typename T, int kCount>
__device__ __forceinline__ void stay_packed(uint4 (&bits)[kCount]) {
  if constexpr (sizeof(T) == 2) {
    const unsigned zero = blockDim.y - 1;  // which the compiler does not know: blocks have one dim
#pragma unroll
    for (uint4& words : bits) words = {words.x ^ zero, words.y ^ zero, words.z ^ zero, words.w ^ zero};
  }
}

// Writes vector v of a row of dx.
template <typename T, bool kAligned>
__device__ __forceinline__ void store_gradient(const Row<T, kAligned>& dx, int v, uint4 g_bits, uint4 y_bits,
                                               float dot) {
  float g[kPerVector<T>], y[kPerVector<T>];
  unpack<T>(g_bits, g);
  unpack<T>(y_bits, y);
#pragma unroll
  for (int e = 0; e < kPerVector<T>; ++e) g[e] = y[e] * (g[e] - dot);
  dx.store(v, g);
}

// One row, cut where dx, and so y, has its boundaries.
template <typename T, bool kAligned>
struct GradRow {
  Row<T, kAligned> g_to_dx;
  const T* y;

  __device__ GradRow(const GradRows<T>& all, int64_t row)
      : g_to_dx(all.g_to_dx, row), y(all.y + row * all.g_to_dx.cols) {}

  __device__ int vectors() const { return g_to_dx.vectors(); }

  // Vectors first, first + step, ... of both; zeros outside the row. Where g is shifted its vectors are
  // put together two at a time, since their neighbours take registers too.
  template <int kCount>
  __device__ void load(int first, int step, uint4 (&g_bits)[kCount], uint4 (&y_bits)[kCount]) const {
    const int end = vectors();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int v = first + i * step;
      const auto* from = y + (static_cast<int64_t>(v) * kPerVector<T> - g_to_dx.lead);
      y_bits[i] = v < end ? __ldg(reinterpret_cast<const uint4*>(from)) : uint4{};
    }
    if (kAligned || g_to_dx.shift == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int v = first + i * step;
        g_bits[i] = v < end ? __ldg(g_to_dx.source(v)) : uint4{};
      }
    } else {
      constexpr int kPair = 2;
#pragma unroll
      for (int i = 0; i < kCount; i += kPair) {
        uint4 low[kPair], high[kPair];
#pragma unroll
        for (int p = 0; p < kPair && i + p < kCount; ++p) {
          const uint4* from = g_to_dx.source(first + (i + p) * step);
          low[p] = g_to_dx.owns(from) ? __ldg(from) : uint4{};
          high[p] = g_to_dx.owns(from + 1) ? __ldg(from + 1) : uint4{};
        }
#pragma unroll
        for (int p = 0; p < kPair && i + p < kCount; ++p) {
          const bool there = first + (i + p) * step < end;
          g_bits[i + p] = there ? straddling(low[p], high[p], g_to_dx.shift) : uint4{};
        }
      }
    }
    if constexpr (!kAligned) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int v = first + i * step;
        if (v >= end || g_to_dx.whole(v)) continue;
        g_to_dx.mask(v, g_bits[i], uint4{});
        g_to_dx.mask(v, y_bits[i], uint4{});
      }
    }
  }

  // Writes those vectors of dx.
  template <int kCount>
  __device__ void store(int first, int step, const uint4 (&g_bits)[kCount], const uint4 (&y_bits)[kCount],
                        float dot) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int v = first + i * step;
      if (v < vectors()) store_gradient(g_to_dx, v, g_bits[i], y_bits[i], dot);
    }
  }
};

// The sum of a row, in every thread of its blocks, from what each thread has. `partials` gets a float from
// each warp of the row, and is free for writing once all peers have arrived. Call it once.
template <int kWarps, bool kCluster>
__device__ __forceinline__ float sum_of_row(float mine, float* partials, const Peers<kCluster>& peers) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  mine = lanes_sum<kWarp>(mine);
  peers.wait();
  if (lane < peers.count) peers.put(&partials[peers.rank * kWarps + warp], mine, lane);
  if constexpr (kCluster) {
    __syncwarp();  // the barrier wants whole warps
    peers.arrive();
    peers.wait();
  } else {
    __syncthreads();
  }
  float sum = 0;
  if constexpr (!kCluster && kWarps <= 4) {
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += partials[i];
  } else {
    for (unsigned i = lane; i < peers.count * kWarps; i += kWarp) sum += partials[i];
    sum = lanes_sum<kWarp>(sum);
  }
  return sum;
}

}  // namespace kernels::softmax
