// The launchers of the backward kernels that work along the last dim: dx = y * (g - sum(g * y)), g the
// upstream gradient and y what the forward returned. Pointers are device memory.
#pragma once

#include "forward.h"

namespace kernels::softmax {

// At least one element. y and dx are contiguous and lie alike between 16-byte boundaries, so that only g may
// be shifted against dx.
struct GradTask {
  Task g_to_dx;  // its x is g, its y is dx
  const void* y;
};

// All return cudaErrorInvalidConfiguration for rows that they cannot hold.
cudaError_t vector_backward(const GradTask& task);  // registers of a warp where they suffice, else of a block
cudaError_t block_backward(const GradTask& task);   // registers of a block
cudaError_t scalar_backward(const GradTask& task);  // the same an element a load
bool scalar_is_faster(const GradTask& task);
// Registers of a cluster of `blocks` blocks of `threads`; 0 chooses. sm_90
cudaError_t cluster_backward(const GradTask& task, int blocks, int threads);
cudaError_t online_backward(const GradTask& task);  // any width, read twice

// As the forward's.
Ring ring_for(const GradTask& task, int team);
cudaError_t ring_backward(const GradTask& task, const Ring& ring, void* scratch);

}  // namespace kernels::softmax
