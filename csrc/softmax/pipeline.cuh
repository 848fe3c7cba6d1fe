// Wide rows in registers, the next ones on their way: clusters of blocks that stay (sm_90) share each row.
// The copy engine brings a block's slices of the rows to come to shared memory while this row is in
// registers, so memory is read once, each exponential is computed once, and loads never wait for a row to be
// written. The blocks exchange one pair a row through each other's shared memory.
#pragma once

#include "cluster.cuh"
#include "forward.h"
#include "slice.cuh"

namespace kernels::softmax {

constexpr int kMostAhead = 4;  // slices in shared memory
constexpr int kOddThreads =
    544;  // where rows are not aligned: a warp more for the vectors between two slices

// Blocks to an SM. Registers for two of float32 rows that are not aligned are not there.
HOST_DEVICE constexpr int resident_blocks(int threads, int item_bytes) {
  return threads == 512 || (threads == kOddThreads && item_bytes == 2) ? 2 : 1;
}

// Pairs of a row; two rows' take turns, so that a warp may write while another still reads the last.
template <int kWarps>
struct Pairs {
  Partial warps[2][kWarps], blocks[2][kMaxCluster];

  // The row's pair from a pair of each warp, in every thread. Every thread of the cluster calls it.
  __device__ __forceinline__ Partial of_row(const Partial& mine, int turn, const Peers<true>& peers) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (lane == 0) warps[turn][warp] = mine;
    __syncthreads();
    if (peers.count == 1) return combined(warps[turn], kWarps);
    if (warp == 0) {
      const Partial block = combined(warps[turn], kWarps);
      if (lane < peers.count) peers.put(&blocks[turn][peers.rank], block, lane);
    }
    __syncwarp();
    peers.arrive();
    peers.wait();
    return combined(blocks[turn], peers.count);
  }
};

// A thread's vectors of a slice as powers, and the pair of its warp.
template <typename T, int kThreads, int kVectors, bool kAligned>
__device__ __forceinline__ Partial powers_of(const Row<T, kAligned>& row, int begin, int end,
                                             const uint4* stage, float (&values)[kVectors][kPerVector<T>]) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    uint4 bits[1];
    read_slice(row, begin, end, stage, begin + i * kThreads + static_cast<int>(threadIdx.x), kThreads,
               nothing<T>(), bits);
    unpack<T>(bits[0], values[i]);
  }
  return to_powers<kWarp>(values);
}

// grid: clusters of blocks, all of them resident; cluster c takes rows c, c + clusters, ... A block has room
// for pipe.ahead slices of pipe.slice vectors, and kThreads * kVectors are enough for one.
template <typename T, int kThreads, int kVectors, bool kAligned>
__global__ void __launch_bounds__(kThreads, resident_blocks(kThreads, sizeof(T)))
    pipeline_kernel(Rows<T> all, Pipeline pipe) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier full[kMostAhead];
  __shared__ Pairs<kThreads / kWarp> pairs;
  const Peers<true> peers;
  const int clusters = gridDim.x / peers.count, begin = peers.rank * pipe.slice;
  const auto stage_of = [&](int stage) {  // a shifted slice needs the vector behind it too
    return reinterpret_cast<uint4*>(memory) + stage * (pipe.slice + (kAligned ? 0 : 1));
  };
  const auto fetch = [&](int64_t number, int stage) {
    if (threadIdx.x != 0 || number >= all.rows) return;
    const Row<T, kAligned> row(all, number);
    fetch_slice(row, begin, min(row.vectors(), begin + pipe.slice), stage_of(stage), full[stage]);
  };

  int64_t number = blockIdx.x / peers.count;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < pipe.ahead; ++stage) full[stage].init(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  for (int stage = 0; stage < pipe.ahead; ++stage) fetch(number + stage * clusters, stage);
  __syncthreads();
  peers.arrive_relaxed();  // nobody's shared memory may be written before it runs
  peers.wait();
  int stage = 0, turn = 0;
  for (unsigned parity = 0; number < all.rows; number += clusters) {
    const Row<T, kAligned> row(all, number);
    const int end = min(row.vectors(), begin + pipe.slice), first = begin + threadIdx.x;
    float values[kVectors][kPerVector<T>];
    full[stage].wait(parity);
    const Partial mine = powers_of<T, kThreads, kVectors, kAligned>(row, begin, end, stage_of(stage), values);
    const Partial whole = pairs.of_row(mine, turn, peers);
    fetch(number + static_cast<int64_t>(pipe.ahead) * clusters, stage);  // all threads have read the slice
    const float scale = rescaled({mine.largest, 1}, whole.largest) / whole.sum;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (first + i * kThreads >= end) continue;
#pragma unroll
      for (float& value : values[i]) value *= scale;
      row.store(first + i * kThreads, values[i]);
    }
    turn ^= 1;
    if (++stage == pipe.ahead) {
      stage = 0;
      parity ^= 1;
    }
  }
#endif
}

}  // namespace kernels::softmax
