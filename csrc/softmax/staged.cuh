// Wide rows in shared memory: a cluster of blocks (sm_90) has one row, each block a slice that the copy
// engine brings. Slices are small and several blocks share an SM, so that some load while others wait for
// their cluster or write: nothing is scheduled by hand. Elements stay packed and are read twice from shared
// memory.
#pragma once

#include "cluster.cuh"
#include "held.cuh"

namespace kernels::softmax {

// kJoined: a block sends one pair to each of its cluster, and not one of each warp.
// grid: rows * cluster size. Dynamic shared memory holds a slice of `slice` vectors.
template <typename T, int kThreads, int kBlocks, int kBatch, bool kJoined, bool kShifted>
__global__ void __launch_bounds__(kThreads, kBlocks) staged_kernel(Rows<T> all, int slice) {
#if __CUDA_ARCH__ >= 900
  constexpr int kWarps = kThreads / kWarp;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier full, exchanged;
  __shared__ Partial pairs[kMaxCluster * (kJoined ? 1 : kWarps)], warps[kJoined ? kWarps : 1];
  const Peers<true> peers;
  const Row<T, false> row(all, blockIdx.x / peers.count);
  const Held<T, kShifted> held(row, reinterpret_cast<uint4*>(memory), peers.rank, slice);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned many = peers.count * (kJoined ? 1 : kWarps);
  if (threadIdx.x == 0) {
    full.init(1);
    exchanged.init(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    held.fetch(full);
    exchanged.arrive_and_expect(many * sizeof(Partial));
  }
  __syncthreads();
  peers.arrive_relaxed();  // nobody may send to a block that does not listen yet
  full.wait(0);
  const Partial mine = of_warp(held.template reduced<kThreads, kBatch>());
  if constexpr (kJoined) {
    if (lane == 0) warps[warp] = mine;
    __syncthreads();
  }
  peers.wait();
  if constexpr (kJoined) {
    if (warp == 0) {
      const Partial block = combined(warps, kWarps);
      if (lane < peers.count) peers.send(&pairs[peers.rank], block, lane, exchanged);
    }
  } else {
    if (lane < peers.count) peers.send(&pairs[peers.rank * kWarps + warp], mine, lane, exchanged);
  }
  exchanged.wait(0);  // so nobody leaves before all have sent to it
  held.template write<kThreads, kBatch>(combined(pairs, many));
#endif
}

template <typename T, int kThreads, int kBlocks, int kBatch, bool kJoined, bool kShifted>
cudaError_t launch_staged(const Rows<T>& all, int cluster, int slice, cudaStream_t stream) {
  auto* kernel = &staged_kernel<T, kThreads, kBlocks, kBatch, kJoined, kShifted>;
  const int bytes = Held<T, kShifted>::room(slice) * 16;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  return launch_together(kernel, all.rows * cluster, kThreads, bytes, cluster, stream, all, slice);
}

}  // namespace kernels::softmax
