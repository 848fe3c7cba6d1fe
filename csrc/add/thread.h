// The launcher in thread.cu. Pointers are device memory.
#pragma once

#include <cuda_runtime_api.h>

#include "add.h"

namespace kernels {

cudaError_t add_thread(const Addition& add, cudaStream_t stream);

}  // namespace kernels
