// The CUDA side of the gradient op that both CUDA bindings register.
#pragma once

#include "../common/stable_cuda.h"
#include "broadcast.h"
#include "sum.cuh"

namespace kernels {

// grad: contiguous, outer * reduce * inner elements. The result: (outer * inner,), of `dtype`. Where the
// output is too small to fill the device, pieces are summed first, and then their sums.
inline Tensor sum_on_device(const Tensor& grad, int64_t outer, int64_t reduce, int64_t inner,
                            ScalarType dtype) {
  check(grad.is_contiguous() && grad.numel() == outer * reduce * inner,
        "grad must be contiguous, with outer * reduce * inner elements.");
  const OnDeviceOf guard(grad);
  const int64_t one = 1, size = outer * inner;
  Tensor out = empty(1, &size, &one, dtype, grad);
  Sum sum{grad.data_ptr(), dtype_of(grad), out.data_ptr(), dtype_of(out), outer, reduce, inner, 1};
  check_launch(sum_splits(sum, grad.get_device_index()), "sum");
  if (sum.splits == 1) {
    check_launch(sum_middle(sum, current_stream(grad)), "sum");
    return out;
  }
  const int64_t partial_size = size * sum.splits;
  const bool is_double = dtype_of(grad) == Dtype::kFloat64;
  Tensor partial = empty(1, &partial_size, &one, is_double ? ScalarType::Double : ScalarType::Float, grad);
  sum.out = partial.data_ptr();
  sum.to = dtype_of(partial);
  check_launch(sum_middle(sum, current_stream(grad)), "sum");
  const Sum rest{sum.out, sum.to, out.data_ptr(), dtype_of(out), outer, sum.splits, inner, 1};
  check_launch(sum_middle(rest, current_stream(grad)), "sum");
  return out;
}

}  // namespace kernels
