// The launcher in thread.cu. Pointers are contiguous device memory of one dtype: x1 [batch, n, d],
// x2 [batch, m, d], out [batch, n, m]; p >= 0.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"

namespace kernels {

cudaError_t cdist_thread(const void* x1, const void* x2, void* out, int64_t batch, int64_t n, int64_t m,
                         int64_t d, double p, Dtype dtype, cudaStream_t stream);

}  // namespace kernels
