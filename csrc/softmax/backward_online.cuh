// Rows of any width on any card: a block reads a row for the sum, and once more for the result, from its end
// to its start, since what was read last is what the caches still hold.
#pragma once

#include "backward.cuh"

namespace kernels::softmax {

template <typename T, int kThreads, int kBatch, bool kAligned>
__global__ void __launch_bounds__(kThreads) online_backward_kernel(GradRows<T> all) {
  constexpr int kWarps = kThreads / kWarp, kStride = kBatch * kThreads;
  __shared__ float partials[kWarps];
  const GradRow<T, kAligned> row(all, blockIdx.x);
  const int rounds = (row.vectors() + kStride - 1) / kStride;
  uint4 g[kBatch], y[kBatch];
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    row.load(round * kStride + threadIdx.x, kThreads, g, y);
    sum += dot<T>(g, y);
  }
  sum = sum_of_row<kWarps>(sum, partials, Peers<false>());
  for (int round = rounds - 1; round >= 0; --round) {
    row.load(round * kStride + threadIdx.x, kThreads, g, y);
    row.store(round * kStride + threadIdx.x, kThreads, g, y, sum);
  }
}

template <int kThreads, int kBatch, typename T>
cudaError_t launch_online_backward(const GradRows<T>& all, cudaStream_t stream) {
  if (all.g_to_dx.rows > 2147483647) return cudaErrorInvalidConfiguration;
  const auto rows = static_cast<unsigned>(all.g_to_dx.rows);
  if (all.g_to_dx.aligned) {
    online_backward_kernel<T, kThreads, kBatch, true><<<rows, kThreads, 0, stream>>>(all);
  } else {
    online_backward_kernel<T, kThreads, kBatch, false><<<rows, kThreads, 0, stream>>>(all);
  }
  return cudaGetLastError();
}

}  // namespace kernels::softmax
