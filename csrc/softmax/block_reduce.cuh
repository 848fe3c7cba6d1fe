// What the plain kernels share: a value of each thread of a block made one. No torch here.
#pragma once

#include "../common/device.cuh"

namespace kernels {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int64_t kMaxBlocks = 2147483647;  // of the x dim of a grid
static_assert(kThreads % kWarp == 0,
              "The shuffles below name every lane, so a block must be whole warps of 32.");
static_assert(kThreads <= 1024, "CUDA allows at most 1024 threads a block.");

struct Larger {
  template <typename C>
  __device__ C operator()(C a, C b) const {
    return a > b ? a : b;
  }
};

struct Sum {
  template <typename C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};

// The combined value of all threads, in all threads. Every thread of the block must call it.
template <typename C, typename Combine>
__device__ C block_reduce(C value, Combine combine, C* partials) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  if (threadIdx.x % kWarp == 0) partials[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = partials[0];
  for (int warp = 1; warp < kWarps; ++warp) value = combine(value, partials[warp]);
  __syncthreads();  // nobody overwrites partials before all have read them
  return value;
}

}  // namespace kernels
