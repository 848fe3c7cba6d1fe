// Softmax over rows: one thread block a row, which it reads three times (maximum, sum, result).
#include <algorithm>
#include <cmath>

#include "block_reduce.cuh"
#include "row.h"

namespace kernels {
namespace {

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
