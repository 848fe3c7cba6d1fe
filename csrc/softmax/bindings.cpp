// kernels::softmax_row and its backward: torch's tensors in, the launchers of row.cu and backward_row.cu out.
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

// `y`: what the forward returned.
Tensor backward(const Tensor& grad, const Tensor& y) {
  check(y.dim() > 0 && y.is_contiguous(), "softmax_row_backward takes a contiguous y of one dim or more.");
  check(same_sizes(grad, y) && dtype_of(grad) == dtype_of(y), "grad and y differ in shape or dtype.");
  check(grad.is_cuda() && grad.get_device_index() == y.get_device_index(),
        "grad and y are on different devices.");
  const DeviceGuard guard(y.get_device_index());
  const Tensor dense = laid_out_as(grad, y);
  Tensor dx = torch::stable::empty_like(y);
  const int64_t cols = y.size(y.dim() - 1);
  const int64_t rows = cols == 0 ? 0 : y.numel() / cols;
  check_launch(softmax_row_backward(dense.data_ptr(), y.data_ptr(), dx.data_ptr(), rows, cols, dtype_of(y),
                                    current_stream(y)),
               "softmax_row_backward");
  return dx;
}

// The first is what autograd knows; the second is for calls without a gradient, and has no Python in its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("softmax_row(Tensor x) -> Tensor");
  m.def("softmax_row_forward(Tensor x) -> Tensor");
  m.def("softmax_row_backward(Tensor grad, Tensor y) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("softmax_row", TORCH_BOX(&forward));
  m.impl("softmax_row_forward", TORCH_BOX(&forward));
  m.impl("softmax_row_backward", TORCH_BOX(&backward));
}

}  // namespace
}  // namespace kernels
