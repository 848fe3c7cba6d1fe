// The launchers of the forms that keep outputs in registers. Device memory of one dtype, up to float32; p >=
// 0.
#pragma once

#include <cuda_runtime_api.h>

#include "batches.h"

namespace kernels {

// x1, x2 as `batches` says, out [outer, inner, n, m] contiguous and aligned to 16 bytes.
struct Exact {
  const void *x1, *x2;
  void* out;
  Batches batches;
  double p;
  Dtype dtype;
  cudaStream_t stream;
};

constexpr int kMostSmall = 16;  // coordinates that cdist_small takes

cudaError_t cdist_small(const Exact& call);

// `large`: tiles of 128 x 128 outputs; else of 64 x 64, for outputs that would not fill the card.
cudaError_t cdist_register(const Exact& call, bool large);

}  // namespace kernels
