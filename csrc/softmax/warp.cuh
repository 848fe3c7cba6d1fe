// Narrow rows: a warp, or a part of one, holds whole rows in registers. No block-wide barrier.
#pragma once

#include "power.cuh"
#include "rows.cuh"

namespace kernels::softmax {

constexpr int kWarpThreads = 128;

// kLanes threads share a row, each with kVectors vectors of it, and take kRows rows at once so that enough
// loads are in flight. grid: ceil(rows / (kWarpThreads / kLanes * kRows)).
template <typename T, int kLanes, int kVectors, int kRows, bool kAligned>
__global__ void __launch_bounds__(kWarpThreads) warp_kernel(Rows<T> all) {
  constexpr int kTeams = kWarpThreads / kLanes, kV = kPerVector<T>;
  const int lane = threadIdx.x % kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTeams * kRows + threadIdx.x / kLanes;
  uint4 bits[kRows][kVectors];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool there = first + r * kTeams < all.rows;
    const Row<T, kAligned> row(all, there ? first + r * kTeams : 0);
    row.load(there ? lane : row.vectors(), kLanes, bits[r]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool there = first + r * kTeams < all.rows;  // the shuffles want every lane
    const Row<T, kAligned> row(all, there ? first + r * kTeams : 0);
    float values[kVectors][kV];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) unpack<T>(bits[r][i], values[i]);
    const float scale = 1 / to_powers<kLanes>(values).sum;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!there || lane + i * kLanes >= row.vectors()) continue;
#pragma unroll
      for (float& value : values[i]) value *= scale;
      row.store(lane + i * kLanes, values[i]);
    }
  }
}

template <typename T, int kLanes, int kVectors, int kRows>
cudaError_t launch_warp(const Rows<T>& all, cudaStream_t stream) {
  const int64_t blocks = ceil_div(all.rows, kWarpThreads / kLanes * kRows);
  if (blocks > 2147483647) return cudaErrorInvalidConfiguration;
  if (all.aligned) {
    warp_kernel<T, kLanes, kVectors, kRows, true><<<blocks, kWarpThreads, 0, stream>>>(all);
  } else {
    warp_kernel<T, kLanes, kVectors, kRows, false><<<blocks, kWarpThreads, 0, stream>>>(all);
  }
  return cudaGetLastError();
}

}  // namespace kernels::softmax
