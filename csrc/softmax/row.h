// The launchers in row.cu and backward_row.cu. Pointers are device memory, rows * cols contiguous elements of
// one dtype.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"

namespace kernels {

cudaError_t softmax_row(const void* x, void* y, int64_t rows, int64_t cols, Dtype dtype, cudaStream_t stream);

// dx = y * (g - sum(g * y)) for each row.
cudaError_t softmax_row_backward(const void* g, const void* y, void* dx, int64_t rows, int64_t cols,
                                 Dtype dtype, cudaStream_t stream);

}  // namespace kernels
