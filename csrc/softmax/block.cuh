// Rows in registers: a thread block, or a cluster of them, holds one row. Memory is read once, and what the
// threads have to tell each other is one pair a warp: its largest element and its sum under that.
#pragma once

#include "cluster.cuh"
#include "rows.cuh"

namespace kernels::softmax {

// grid: rows * cluster size. kThreads * kVectors * cluster size vectors hold at least one row.
template <typename T, int kThreads, int kVectors, bool kCluster, bool kAligned>
__global__ void __launch_bounds__(kThreads, kCluster&& kAligned ? 1024 / kThreads : 1)
    block_kernel(Rows<T> all) {
  constexpr int kV = kPerVector<T>, kWarps = kThreads / kWarp;
  __shared__ Partial partials[(kCluster ? kMaxCluster : 1) * kWarps];
  const Peers<kCluster> peers;
  peers.arrive_relaxed();  // nobody's shared memory may be written before it runs
  const Row<T, kAligned> row(all, blockIdx.x / peers.count);
  const int first = peers.rank * (kThreads * kVectors) + threadIdx.x, vectors = row.vectors();

  uint4 bits[kVectors];
  row.load(first, kThreads, bits);
  float values[kVectors][kV];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) unpack<T>(bits[i], values[i]);
  const Partial mine = to_powers<kWarp>(values);

  peers.wait();
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (lane < peers.count) peers.put(&partials[peers.rank * kWarps + warp], mine, lane);
  if constexpr (kCluster) {
    peers.arrive();
    peers.wait();
  } else {
    __syncthreads();
  }
  Partial whole;
  if constexpr (!kCluster && kWarps <= 4) {
    whole = combined_few<kWarps>(partials);
  } else {
    whole = combined(partials, peers.count * kWarps);
  }
  const float scale = rescaled({mine.largest, 1}, whole.largest) / whole.sum;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (first + i * kThreads >= vectors) continue;
#pragma unroll
    for (float& value : values[i]) value *= scale;
    row.store(first + i * kThreads, values[i]);
  }
}

template <typename T, int kThreads, int kVectors>
cudaError_t launch_block(const Rows<T>& all, cudaStream_t stream) {
  if (all.rows > 2147483647) return cudaErrorInvalidConfiguration;
  const auto rows = static_cast<unsigned>(all.rows);
  if (all.aligned) {
    block_kernel<T, kThreads, kVectors, false, true><<<rows, kThreads, 0, stream>>>(all);
  } else {
    block_kernel<T, kThreads, kVectors, false, false><<<rows, kThreads, 0, stream>>>(all);
  }
  return cudaGetLastError();
}

template <typename T, int kThreads, int kVectors, bool kAligned>
cudaError_t launch_cluster(const Rows<T>& all, int cluster, cudaStream_t stream) {
  auto* kernel = &block_kernel<T, kThreads, kVectors, true, kAligned>;
  return launch_together(kernel, all.rows * cluster, kThreads, 0, cluster, stream, all);
}

}  // namespace kernels::softmax
