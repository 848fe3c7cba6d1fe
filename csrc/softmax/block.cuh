// Rows in registers: a thread block, or a cluster of them, holds one row. Memory is read once, and what the
// threads have to tell each other is one pair a warp: its largest element and its sum under that.
#pragma once

#include "power.cuh"
#include "rows.cuh"

namespace kernels::softmax {

constexpr int kMaxCluster = 16;  // more than 8 must be allowed for each kernel

// The blocks of a cluster (sm_90): their number, this one's rank, and their common barrier in two halves.
// Without clusters a row is one block's.
template <bool kCluster>
struct Peers {
  unsigned count = 1, rank = 0;

  __device__ Peers() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kCluster) {
      asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(count));
      asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    }
#endif
  }
  __device__ void arrive() const {
#if __CUDA_ARCH__ >= 900
    if constexpr (kCluster) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
  }
  __device__ void wait() const {
#if __CUDA_ARCH__ >= 900
    if constexpr (kCluster) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }
  // Writes `value` to where `slot` lies in the shared memory of block `peer`.
  __device__ void put(Partial* slot, const Partial& value, unsigned peer) const {
#if __CUDA_ARCH__ >= 900
    if constexpr (kCluster) {
      asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there(slot, peer)), "f"(value.largest),
                   "f"(value.sum)
                   : "memory");
      return;
    }
#endif
    *slot = value;
  }
  __device__ void put(float* slot, float value, unsigned peer) const {
#if __CUDA_ARCH__ >= 900
    if constexpr (kCluster) {
      asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there(slot, peer)), "f"(value) : "memory");
      return;
    }
#endif
    *slot = value;
  }

 private:
#if __CUDA_ARCH__ >= 900
  __device__ static unsigned there(const void* slot, unsigned peer) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(static_cast<unsigned>(__cvta_generic_to_shared(slot))), "r"(peer));
    return address;
  }
#endif
};

// grid: rows * cluster size. kThreads * kVectors * cluster size vectors hold at least one row.
template <typename T, int kThreads, int kVectors, bool kCluster, bool kAligned>
__global__ void __launch_bounds__(kThreads, 1) block_kernel(Rows<T> all) {
  constexpr int kV = kPerVector<T>, kWarps = kThreads / kWarp;
  __shared__ Partial partials[(kCluster ? kMaxCluster : 1) * kWarps];
  const Peers<kCluster> peers;
  peers.arrive();  // nobody's shared memory may be written before it runs
  const Row<T, kAligned> row(all, blockIdx.x / peers.count);
  const int first = peers.rank * (kThreads * kVectors) + threadIdx.x, vectors = row.vectors();

  uint4 bits[kVectors];
  row.load(first, kThreads, bits);
  float values[kVectors][kV], largest = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    unpack<T>(bits[i], values[i]);
#pragma unroll
    for (float value : values[i]) largest = fmaxf(largest, value);
  }
  largest = lanes_max<kWarp>(largest);
  const Power power(largest);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (float& value : values[i]) sum += value = power(value);
  }
  sum = lanes_sum<kWarp>(sum);

  peers.wait();
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (lane < peers.count) peers.put(&partials[peers.rank * kWarps + warp], {largest, sum}, lane);
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
  const float scale = rescaled({largest, 1}, whole.largest) / whole.sum;
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

// `kernel` in a cluster of `cluster` blocks for each row.
template <typename All>
cudaError_t launch_clusters(void (*kernel)(All), const All& all, int64_t rows, int threads, int cluster,
                            cudaStream_t stream) {
  if (rows > 2147483647 / cluster) return cudaErrorInvalidConfiguration;
  if (cluster > 8) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute shape;
  shape.id = cudaLaunchAttributeClusterDimension;
  shape.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows * cluster));
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &shape;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, all);
}

template <typename T, int kThreads, int kVectors>
cudaError_t launch_cluster(const Rows<T>& all, int cluster, cudaStream_t stream) {
  auto* kernel = all.aligned ? &block_kernel<T, kThreads, kVectors, true, true>
                             : &block_kernel<T, kThreads, kVectors, true, false>;
  return launch_clusters(kernel, all, all.rows, kThreads, cluster, stream);
}

}  // namespace kernels::softmax
