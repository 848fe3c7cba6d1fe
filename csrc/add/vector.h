// The launcher in vector.cu. Pointers are device memory.
#pragma once

#include <cuda_runtime_api.h>

#include "add.h"

namespace kernels {

// How the work is cut: each of a block's `threads` (whole warps, to 512) has `loads` (2, 4 or 8) of 16 bytes
// under way, of both operands together.
struct Cut {
  int64_t loads, threads;
};

// Whether the operands can be read in packs or as one value a row: at most two dims, the inner one walked by
// 1 or by 0, and no dtype to convert.
bool add_is_vectorizable(const Addition& add);

cudaError_t add_vector(const Addition& add, Cut cut, cudaStream_t stream);

}  // namespace kernels
