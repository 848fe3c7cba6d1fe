// A cluster of thread blocks (sm_90): how its blocks tell each other a pair or a number, and how one is
// launched.
#pragma once

#include "barrier.cuh"
#include "power.cuh"

namespace kernels::softmax {

constexpr int kMaxCluster = 16;  // more than 8 must be allowed for each kernel

// The blocks of a cluster: their number, this one's rank, and their common barrier in two halves. Without
// clusters a row is one block's.
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
  // Where nothing was written that the others read after their wait.
  __device__ void arrive_relaxed() const {
#if __CUDA_ARCH__ >= 900
    if constexpr (kCluster) asm volatile("barrier.cluster.arrive.relaxed.aligned;");
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
#if __CUDA_ARCH__ >= 900
  // The same, and tells `barrier` of the peer, which counts the bytes.
  __device__ void send(Partial* slot, const Partial& value, unsigned peer, const Barrier& barrier) const {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     there(slot, peer)),
                 "l"(reinterpret_cast<const unsigned long long&>(value)), "r"(there(&barrier, peer))
                 : "memory");
  }
#endif

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

// How a kernel is launched in clusters: what a launch and a question of what fits have in common.
struct Together {
  cudaLaunchAttribute shape{};
  cudaLaunchConfig_t config{};

  Together(int64_t blocks, int threads, int shared_bytes, int cluster, cudaStream_t stream) {
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &shape;
    config.numAttrs = cluster > 1;  // cards without clusters refuse even one of a single block
  }
  Together(const Together&) = delete;
};

template <typename Kernel>
cudaError_t allow_cluster(Kernel* kernel, int cluster) {
  if (cluster <= 8) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

// Launches `blocks`, `cluster` of which share what they work on.
template <typename... Taken, typename... Given>
cudaError_t launch_together(void (*kernel)(Taken...), int64_t blocks, int threads, int shared_bytes,
                            int cluster, cudaStream_t stream, Given... given) {
  if (blocks > 2147483647) return cudaErrorInvalidConfiguration;
  const cudaError_t error = allow_cluster(kernel, cluster);
  if (error != cudaSuccess) return error;
  const Together together(blocks, threads, shared_bytes, cluster, stream);
  return cudaLaunchKernelEx(&together.config, kernel, given...);
}

}  // namespace kernels::softmax
