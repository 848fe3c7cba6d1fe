// The launcher in sum.cu. Pointers are device memory.
#pragma once

#include <cuda_runtime_api.h>

#include "sum.h"

namespace kernels {

// How many pieces fill the device where outer * inner alone do not.
cudaError_t sum_splits(Sum& sum, int device);

cudaError_t sum_middle(const Sum& sum, cudaStream_t stream);

}  // namespace kernels
