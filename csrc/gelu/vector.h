// The launchers in vector.cu. Pointers are device memory, n elements each, of one dtype.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"

namespace kernels {

// How the work is cut: each of a block's `threads` (whole warps, to 512) has `loads` (1, 2, 4 or 8) of 16
// bytes under way, of all inputs together, but one of each at least. 0 loads: 2, or 1 where elements are few.
struct Cut {
  int64_t loads, threads;
};

cudaError_t gelu_vector(const void* x, void* y, int64_t n, Dtype dtype, bool tanh, Cut cut,
                        cudaStream_t stream);

cudaError_t gelu_vector_backward(const void* grad, const void* x, void* dx, int64_t n, Dtype dtype, bool tanh,
                                 Cut cut, cudaStream_t stream);

}  // namespace kernels
