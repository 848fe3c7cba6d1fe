// kernels::softmax_row: torch's tensors in, the launcher of row.cu out.
#include "../common/stable_cuda.h"
#include "row.h"

namespace kernels {
namespace {

// Along the last dim of a contiguous tensor.
Tensor forward(const Tensor& x) {
  check(x.dim() > 0 && x.is_contiguous(), "softmax_row takes a contiguous tensor of one dim or more.");
  const DeviceGuard guard(x.get_device_index());
  Tensor y = torch::stable::empty_like(x);
  const int64_t cols = x.size(x.dim() - 1);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols;
  check_launch(softmax_row(x.data_ptr(), y.data_ptr(), rows, cols, dtype_of(x), current_stream(x)),
               "softmax_row");
  return y;
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) { m.def("softmax_row(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) { m.impl("softmax_row", TORCH_BOX(&forward)); }

}  // namespace
}  // namespace kernels
