// Softmax down the columns in the registers of a cluster of small blocks (sm_90), each of which has some rows
// of a tile. Several blocks share an SM, so that some load while others wait for their cluster or write:
// nothing is scheduled by hand. Powers are computed twice, as strided_stream.cuh does.
#pragma once

#include "strided_stream.cuh"

namespace kernels::softmax {

constexpr int kMostColumnBytes = 256;  // of a tile's row

// Threads of a block, how many blocks of an SM registers are kept for, and vectors that a thread holds.
template <int kThreadsOf, int kResidentOf, int kVectorsOf>
struct ClusterPlan {
  static constexpr int kThreads = kThreadsOf, kResident = kResidentOf, kVectors = kVectorsOf;
  static constexpr int kWarps = kThreads / kWarp;
};

// What blocks know of a tile's columns, in shared memory: a pair for each column and warp, a pair for each
// column and block, and what results are made with, which takes the place of whichever pairs are read no
// more.
template <typename T>
struct ColumnTables {
  Partial *warps, *blocks;  // [warp or block][column]
  Whole<T>* wholes;

  __device__ ColumnTables(void* memory, int columns, int of_warps, bool alone)
      : warps(static_cast<Partial*>(memory)),
        blocks(warps + of_warps * columns),
        wholes(reinterpret_cast<Whole<T>*>(alone ? blocks : warps)) {}

  HOST_DEVICE static constexpr int bytes(int columns, int of_warps, int of_blocks) {
    static_assert(sizeof(Whole<T>) == 2 * sizeof(Partial), "The pairs of two blocks are room for results.");
    return columns * (of_warps + (of_blocks > 2 ? of_blocks : 2)) * static_cast<int>(sizeof(Partial));
  }
};

// The largest elements of the columns of this thread, over its warp.
template <typename T, int kV>
__device__ __forceinline__ void find_largest(uint4 (&bits)[kV], int period, uint32_t (&most)[4]) {
#pragma unroll
  for (uint32_t& word : most) word = nothing<T>().x;
#pragma unroll
  for (uint4& vector : bits) {
#pragma unroll
    for (int w = 0; w < 4; ++w) most[w] = larger<T>(most[w], word_of(vector, w));
  }
  across(most, period, [](uint32_t a, uint32_t b) { return larger<T>(a, b); });
}

// The pair of a column from `count` pairs that lie `step` apart.
__device__ __forceinline__ Partial combined_column(const Partial* pairs, int step, int count) {
  Partial all{-INFINITY, 0};
#pragma unroll 4
  for (int i = 0; i < count; ++i) all.largest = fmaxf(all.largest, pairs[i * step].largest);
#pragma unroll 4
  for (int i = 0; i < count; ++i) all.sum += rescaled(pairs[i * step], all.largest);
  return all;
}

#if __CUDA_ARCH__ >= 900
// From the pairs of warps to what results are made with. Every thread of the cluster calls it, after the
// first half of the cluster's barrier; `sent` expects a pair for each column and block, so that nobody leaves
// before all have sent to it. A thread has a column: the rest of a block's warps only wait, which costs less
// than shuffles in all of them.
template <typename T, typename P>
__device__ __forceinline__ void agree_by_sending(const ColumnTables<T>& tables, int columns,
                                                 const Peers<true>& peers, Barrier& sent) {
  static_assert(P::kThreads * sizeof(T) >= kMostColumnBytes, "A thread for each column.");
  __syncthreads();
  peers.wait();
  const int column = threadIdx.x;
  if (column < columns) {
    Partial pair = combined_column(tables.warps + column, columns, P::kWarps);
    if (peers.count > 1) {  // a launch without clusters has no such stores, not to oneself either
      for (unsigned peer = 0; peer < peers.count; ++peer)
        peers.send(&tables.blocks[peers.rank * columns + column], pair, peer, sent);
      sent.wait(0);
      pair = combined_column(tables.blocks + column, columns, peers.count);
    }
    tables.wholes[column] = {Curve<T>(pair.largest), 1 / pair.sum};
  }
  __syncthreads();
}
#endif

// grid: tiles * cluster size. Dynamic shared memory holds the tables.
template <typename T, typename P>
__global__ void __launch_bounds__(P::kThreads, P::kResident)
    strided_cluster_kernel(const __grid_constant__ Tiles<T> all) {
#if __CUDA_ARCH__ >= 900
  constexpr int kWide = kPerVector<T>;
  extern __shared__ uint4 shared[];
  __shared__ Barrier sent;
  const Peers<true> peers;
  const Place<T, P> here(all, blockIdx.x / peers.count, peers.rank);
  uint4 bits[P::kVectors];
  load_tile(all, here, bits);
  if (threadIdx.x == 0 && peers.count > 1) {
    sent.init(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    sent.arrive_and_expect(peers.count * all.columns * sizeof(Partial));
  }
  __syncwarp();
  peers.arrive_relaxed();  // nobody may send to a block that does not listen yet

  const ColumnTables<T> tables(shared, all.columns, P::kWarps, peers.count == 1);
  const int period = 1 << all.shift, first = (threadIdx.x & (period - 1)) * kWide;
  uint32_t most[4];
  float largest[kWide], sums[kWide];
  find_largest<T>(bits, period, most);
  sum_powers<T, false>(bits, most, largest, sums);
  across(sums, period, [](float a, float b) { return a + b; });
  if (threadIdx.x % kWarp < period) {
    Partial* const pairs = tables.warps + threadIdx.x / kWarp * all.columns + first;
#pragma unroll
    for (int j = 0; j < kWide; ++j) pairs[j] = {largest[j], sums[j]};
  }
  agree_by_sending<T, P>(tables, all.columns, peers, sent);
  store_powers(all, here, tables.wholes, first, bits);
#endif
}

}  // namespace kernels::softmax
