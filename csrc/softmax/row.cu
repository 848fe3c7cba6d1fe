// Softmax over rows: one thread block a row, which it reads three times (maximum, sum, result).
#include "row.h"

#include <algorithm>
#include <cmath>

#include "../common/device.cuh"

namespace kernels {
namespace {

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

// A thread without an element brings -inf to the maximum and 0 to the sum, so any cols will do. A row of
// -inf gives -inf - -inf = NaN, as it should.
template <typename T>
__global__ void __launch_bounds__(kThreads) softmax_kernel(const T* x, T* y, int64_t rows, int64_t cols) {
  using C = Compute<T>;
  __shared__ C partials[kWarps];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* in = x + row * cols;
    T* out = y + row * cols;
    C largest = -static_cast<C>(INFINITY);
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) largest = Larger{}(convert<C>(in[c]), largest);
    largest = block_reduce(largest, Larger{}, partials);
    C sum = 0;
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) sum += exp(convert<C>(in[c]) - largest);
    const C scale = 1 / block_reduce(sum, Sum{}, partials);
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
      out[c] = convert<T>(exp(convert<C>(in[c]) - largest) * scale);
    }
  }
}

}  // namespace

cudaError_t softmax_row(const void* x, void* y, int64_t rows, int64_t cols, Dtype dtype,
                        cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;  // a grid of no blocks is an error
  const auto blocks = static_cast<unsigned>(std::min(rows, kMaxBlocks));
  return with_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    softmax_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), rows, cols);
    return cudaGetLastError();
  });
}

}  // namespace kernels
