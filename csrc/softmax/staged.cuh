// Wide rows in shared memory: a cluster of blocks (sm_90) has one row, each block a slice that the copy
// engine brings. Slices are small and several blocks share an SM, so that some load while others wait for
// their cluster or write: nothing is scheduled by hand. Elements stay packed and are read twice from shared
// memory.
#pragma once

#include "cluster.cuh"
#include "held.cuh"

namespace kernels::softmax {

// How the blocks of a cluster tell each other their pairs: by stores and the cluster's barrier, or by stores
// that a barrier in the receiver's shared memory counts; one pair of each warp, or one of the block.
enum class Exchange { kBarrier, kCounted, kCountedOnce };

// All pairs of a row, in shared memory, from one of each warp; and what a thread needs to reach them.
template <int kWarps, Exchange kExchange>
struct RowPairs {
  static constexpr bool kOnce = kExchange == Exchange::kCountedOnce;
  Barrier sent;
  Partial warps[kOnce ? kWarps : 1], all[kMaxCluster * (kOnce ? 1 : kWarps)];

#if __CUDA_ARCH__ >= 900
  // By one thread, before the cluster's first barrier.
  __device__ void listen(const Peers<true>& peers) {
    if (kExchange == Exchange::kBarrier || peers.count == 1) return;
    sent.init(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    sent.arrive_and_expect(peers.count * (kOnce ? 1 : kWarps) * sizeof(Partial));
  }

  // The pair of the row, in every thread; all threads call it, after the cluster's first barrier.
  __device__ Partial exchanged(const Partial& mine, const Peers<true>& peers) {
    const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if constexpr (kExchange == Exchange::kBarrier) {
      if (lane < peers.count) peers.put(&all[peers.rank * kWarps + warp], mine, lane);
      peers.arrive();
      peers.wait();
      return combined(all, peers.count * kWarps);
    }
    if (peers.count == 1) {  // outside a cluster nobody may send, to itself either
      Partial* const own = kOnce ? warps : all;
      if (lane == 0) own[warp] = mine;
      __syncthreads();
      return combined(own, kWarps);
    }
    if constexpr (kOnce) {
      if (lane == 0) warps[warp] = mine;
      __syncthreads();
      if (warp == 0) {
        const Partial block = combined(warps, kWarps);
        if (lane < peers.count) peers.send(&all[peers.rank], block, lane, sent);
      }
    } else {
      if (lane < peers.count) peers.send(&all[peers.rank * kWarps + warp], mine, lane, sent);
    }
    sent.wait(0);  // so nobody leaves before all have sent to it
    return combined(all, peers.count * (kOnce ? 1 : kWarps));
  }
#endif
};

// grid: rows * cluster size. Dynamic shared memory holds a slice of `slice` vectors.
template <typename T, int kThreads, int kBlocks, int kBatch, Exchange kExchange, bool kShifted>
__global__ void __launch_bounds__(kThreads, kBlocks) staged_kernel(Rows<T> all, int slice) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier full;
  __shared__ RowPairs<kThreads / kWarp, kExchange> pairs;
  const Peers<true> peers;
  const Row<T, false> row(all, blockIdx.x / peers.count);
  const Held<T, kShifted> held(row, reinterpret_cast<uint4*>(memory), peers.rank, slice);
  if (threadIdx.x == 0) {
    full.init(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    held.fetch(full);
    pairs.listen(peers);
  }
  __syncthreads();
  peers.arrive_relaxed();  // nobody may write to a block that does not run yet
  full.wait(0);
  const Partial mine = of_warp(held.template reduced<kThreads, kBatch>());
  peers.wait();
  held.template write<kThreads, kBatch>(pairs.exchanged(mine, peers));
#endif
}

template <typename T, int kThreads, int kBlocks, int kBatch, Exchange kExchange, bool kShifted>
cudaError_t launch_staged(const Rows<T>& all, int cluster, int slice, cudaStream_t stream) {
  auto* kernel = &staged_kernel<T, kThreads, kBlocks, kBatch, kExchange, kShifted>;
  const int bytes = Held<T, kShifted>::room(slice) * 16;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  return launch_together(kernel, all.rows * cluster, kThreads, bytes, cluster, stream, all, slice);
}

}  // namespace kernels::softmax
