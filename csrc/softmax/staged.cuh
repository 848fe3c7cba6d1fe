// Wide rows in shared memory: a cluster of blocks (sm_90) has one row, each block a slice that the copy
// engine brings. Slices are small and several blocks share an SM, so that some load while others wait for
// their cluster or write: nothing is scheduled by hand. Elements stay packed and are read twice from shared
// memory.
#pragma once

#include "cluster.cuh"
#include "held.cuh"
#include "shared_limit.h"

namespace kernels::softmax {

// The pairs of a row's warps, in the shared memory of each block that has a part of it.
template <int kWarps>
struct RowPairs {
  Barrier sent;  // counts the bytes of all pairs, so that the blocks need no common barrier
  Partial all[kMaxCluster * kWarps];

#if __CUDA_ARCH__ >= 900
  // By one thread, before the cluster's first barrier.
  __device__ void listen(const Peers<true>& peers) {
    if (peers.count == 1) return;
    sent.init(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    sent.arrive_and_expect(peers.count * kWarps * sizeof(Partial));
  }

  // The pair of the row, in every thread, from that of this warp; after the cluster's first barrier.
  __device__ Partial exchanged(const Partial& mine, const Peers<true>& peers) {
    const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    Partial* const slot = &all[peers.rank * kWarps + warp];
    if (peers.count == 1) {  // a launch without clusters has no such stores, not to oneself either
      if (lane == 0) *slot = mine;
      __syncthreads();
    } else {
      if (lane < peers.count) peers.send(slot, mine, lane, sent);
      sent.wait(0);  // so nobody leaves before all have sent to it
    }
    return combined(all, peers.count * kWarps);
  }
#endif
};

// grid: rows * cluster size. Dynamic shared memory holds a slice of `slice` vectors.
template <typename T, int kThreads, int kBlocks, int kBatch, bool kShifted>
__global__ void __launch_bounds__(kThreads, kBlocks) staged_kernel(Rows<T> all, int slice) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier full;
  __shared__ RowPairs<kThreads / kWarp> pairs;
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
  peers.arrive_relaxed();  // nobody may send to a block that does not listen yet
  full.wait(0);
  const Partial mine = of_warp(held.template reduced<kThreads, kBatch>());
  peers.wait();
  held.template write<kThreads, kBatch>(pairs.exchanged(mine, peers));
#endif
}

template <typename T, int kThreads, int kBlocks, int kBatch, bool kShifted>
cudaError_t launch_staged(const Rows<T>& all, int cluster, int slice, cudaStream_t stream) {
  auto* kernel = &staged_kernel<T, kThreads, kBlocks, kBatch, kShifted>;
  const int bytes = Held<T, kShifted>::room(slice) * 16;
  return with_shared_bytes(kernel, bytes, [&] {
    return launch_together(kernel, all.rows * cluster, kThreads, bytes, cluster, stream, all, slice);
  });
}

}  // namespace kernels::softmax
