// Two sets of points whose batches broadcast without copies. No torch and no CUDA here.
#pragma once

#include "../common/dtype.h"

namespace kernels {

// x1 [outer, inner, n, d] and x2 [outer, inner, m, d]. The points of one batch are contiguous; a step, in
// elements, is how far it is to the next batch, and 0 where that input has only one for all.
struct Batches {
  int64_t outer, inner, n, m, d;
  int64_t outer1, inner1, outer2, inner2;

  HOST_DEVICE int64_t count() const { return outer * inner; }
  HOST_DEVICE int64_t start1(int64_t b) const { return b / inner * outer1 + b % inner * inner1; }
  HOST_DEVICE int64_t start2(int64_t b) const { return b / inner * outer2 + b % inner * inner2; }
};

}  // namespace kernels
