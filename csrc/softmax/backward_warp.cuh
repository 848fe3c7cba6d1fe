// Narrow rows: a warp, or a part of one, holds whole rows of both in registers. No block-wide barrier.
#pragma once

#include "backward.cuh"
#include "warp.cuh"

namespace kernels::softmax {

// As warp_kernel: kLanes threads share a row, each with kVectors vectors of g and of y, and take kRows rows
// at once. grid: ceil(rows / (kWarpThreads / kLanes * kRows)).
template <typename T, int kLanes, int kVectors, int kRows, bool kAligned>
__global__ void __launch_bounds__(kWarpThreads) warp_backward_kernel(GradRows<T> all) {
  constexpr int kTeams = kWarpThreads / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t rows = all.g_to_dx.rows;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTeams * kRows + threadIdx.x / kLanes;
  uint4 g[kRows][kVectors], y[kRows][kVectors];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool there = first + r * kTeams < rows;
    const GradRow<T, kAligned> row(all, there ? first + r * kTeams : 0);
    row.load(there ? lane : row.vectors(), kLanes, g[r], y[r]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool there = first + r * kTeams < rows;  // the shuffles want every lane
    const GradRow<T, kAligned> row(all, there ? first + r * kTeams : 0);
    const float sum = lanes_sum<kLanes>(dot<T>(g[r], y[r]));
    stay_packed<T>(g[r]);
    stay_packed<T>(y[r]);
    if (there) row.store(lane, kLanes, g[r], y[r], sum);
  }
}

template <typename T, int kLanes, int kVectors, int kRows>
cudaError_t launch_warp_backward(const GradRows<T>& all, cudaStream_t stream) {
  const int64_t blocks = ceil_div(all.g_to_dx.rows, kWarpThreads / kLanes * kRows);
  if (blocks > 2147483647) return cudaErrorInvalidConfiguration;
  if (all.g_to_dx.aligned) {
    warp_backward_kernel<T, kLanes, kVectors, kRows, true><<<blocks, kWarpThreads, 0, stream>>>(all);
  } else {
    warp_backward_kernel<T, kLanes, kVectors, kRows, false><<<blocks, kWarpThreads, 0, stream>>>(all);
  }
  return cudaGetLastError();
}

}  // namespace kernels::softmax
