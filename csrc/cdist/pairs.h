// What both bindings of cdist ask of their inputs.
#pragma once

#include "../common/stable.h"

namespace kernels {

inline void check_pairs(const Tensor& x1, const Tensor& x2, double p, const std::string& name) {
  check(x1.dim() == 3 && x2.dim() == 3 && x1.size(0) == x2.size(0) && x1.size(2) == x2.size(2),
        name + " takes [batch, n, d] and [batch, m, d].");
  check(x1.is_contiguous() && x2.is_contiguous(), name + " takes contiguous tensors.");
  check(dtype_of(x1) == dtype_of(x2), name + " takes two tensors of one dtype.");
  check(p >= 0, name + " takes a p that is not negative.");
}

}  // namespace kernels
