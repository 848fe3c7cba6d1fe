// From torch's tensors to an Addition, for both bindings.
#pragma once

#include "../common/stable.h"
#include "add.h"

namespace kernels {

inline Operand operand_of(const Tensor& tensor) {
  Operand operand{tensor.data_ptr(), dtype_of(tensor), {}};
  for (int64_t d = 0; d < tensor.dim(); ++d) operand.stride[d] = tensor.stride(d);
  return operand;
}

// a, b and out have one shape of at most kMaxRank dims; broadcast dims have stride 0; out is contiguous.
inline Addition addition_of(const Tensor& a, const Tensor& b, const Tensor& out) {
  check(same_sizes(a, out) && same_sizes(b, out), "a and b must be expanded to out's shape.");
  check(out.dim() <= kMaxRank, "add takes up to 4 dims.");
  check(out.is_contiguous(), "out must be contiguous.");
  Addition add{operand_of(a),
               operand_of(b),
               out.data_ptr(),
               dtype_of(out),
               out.numel(),
               static_cast<int>(out.dim()),
               {}};
  for (int64_t d = 0; d < out.dim(); ++d) add.size[d] = out.size(d);
  return add;
}

}  // namespace kernels
