// The launchers in thread.cu. Pointers are device memory, n elements each, of one dtype.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"

namespace kernels {

cudaError_t gelu_thread(const void* x, void* y, int64_t n, Dtype dtype, bool tanh, cudaStream_t stream);

cudaError_t gelu_thread_backward(const void* grad, const void* x, void* dx, int64_t n, Dtype dtype, bool tanh,
                                 cudaStream_t stream);

}  // namespace kernels
