// The gradient of softmax over rows: one thread block a row, which it reads twice (dot product, result).
#include <algorithm>

#include "block_reduce.cuh"
#include "row.h"

namespace kernels {
namespace {

// A thread without an element brings 0, so any cols will do.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(const T* g, const T* y, T* dx, int64_t rows, int64_t cols) {
  using C = Compute<T>;
  __shared__ C partials[kWarps];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t first = row * cols;
    C dot = 0;
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
      dot += convert<C>(g[first + c]) * convert<C>(y[first + c]);
    }
    dot = block_reduce(dot, Sum{}, partials);
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
      dx[first + c] = convert<T>(convert<C>(y[first + c]) * (convert<C>(g[first + c]) - dot));
    }
  }
}

}  // namespace

cudaError_t softmax_row_backward(const void* g, const void* y, void* dx, int64_t rows, int64_t cols,
                                 Dtype dtype, cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;  // a grid of no blocks is an error
  const auto blocks = static_cast<unsigned>(std::min(rows, kMaxBlocks));
  return with_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    softmax_backward_kernel<<<blocks, kThreads, 0, stream>>>(
        static_cast<const T*>(g), static_cast<const T*>(y), static_cast<T*>(dx), rows, cols);
    return cudaGetLastError();
  });
}

}  // namespace kernels
