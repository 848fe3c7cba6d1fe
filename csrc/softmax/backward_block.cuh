// Rows of g and y in registers: a thread block, or a cluster of them, holds both, so memory is read once.
// What the threads have to tell each other is one float a warp.
#pragma once

#include "backward.cuh"

namespace kernels::softmax {

// Registers of a thread: what an SM has for 1024 of them, so that a small block has company.
constexpr int kResidentThreads = 1024;

// grid: rows * cluster size. kThreads * kVectors * cluster size vectors hold at least one row.
template <typename T, int kThreads, int kVectors, bool kCluster, bool kAligned>
__global__ void __launch_bounds__(kThreads, kResidentThreads / kThreads)
    block_backward_kernel(GradRows<T> all) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ float partials[(kCluster ? kMaxCluster : 1) * kWarps];
  const Peers<kCluster> peers;
  peers.arrive();  // nobody's shared memory may be written before it runs
  const GradRow<T, kAligned> row(all, blockIdx.x / peers.count);
  const int first = peers.rank * (kThreads * kVectors) + threadIdx.x;
  uint4 g[kVectors], y[kVectors];
  row.load(first, kThreads, g, y);
  const float sum = sum_of_row<kWarps>(dot<T>(g, y), partials, peers);
  stay_packed<T>(g);
  stay_packed<T>(y);
  row.store(first, kThreads, g, y, sum);
}

template <typename T, int kThreads, int kVectors>
cudaError_t launch_block_backward(const GradRows<T>& all, cudaStream_t stream) {
  if (all.g_to_dx.rows > 2147483647) return cudaErrorInvalidConfiguration;
  const auto rows = static_cast<unsigned>(all.g_to_dx.rows);
  if (all.g_to_dx.aligned) {
    block_backward_kernel<T, kThreads, kVectors, false, true><<<rows, kThreads, 0, stream>>>(all);
  } else {
    block_backward_kernel<T, kThreads, kVectors, false, false><<<rows, kThreads, 0, stream>>>(all);
  }
  return cudaGetLastError();
}

template <typename T, int kThreads, int kVectors>
cudaError_t launch_cluster_backward(const GradRows<T>& all, int cluster, cudaStream_t stream) {
  auto* kernel = all.g_to_dx.aligned ? &block_backward_kernel<T, kThreads, kVectors, true, true>
                                     : &block_backward_kernel<T, kThreads, kVectors, true, false>;
  return launch_together(kernel, all.g_to_dx.rows * cluster, kThreads, 0, cluster, stream, all);
}

}  // namespace kernels::softmax
