// The gradient of a broadcast: grad (outer, reduce, inner), contiguous, summed over its middle dim. Sums run
// in the compute type, in an order that depends on the sizes and the device alone: the same bits every time.
#pragma once

#include "../common/dtype.h"

namespace kernels {

struct Sum {
  const void* grad;
  Dtype from;
  void* out;  // (outer, splits, inner)
  Dtype to;
  int64_t outer, reduce, inner;
  int64_t splits;  // pieces of `reduce`, each summed on its own
};

}  // namespace kernels
