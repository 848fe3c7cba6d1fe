// kernels::gelu_cuda_thread and its backward: torch's tensors in, launchers of thread.cu out.
#include "../common/stable_cuda.h"
#include "thread.h"

namespace kernels {
namespace {

Tensor forward(const Tensor& x, bool tanh) {
  const OnDeviceOf guard(x);
  Tensor y = empty_as(x);
  const Tensor dense = laid_out_as(x, y);
  check_launch(gelu_thread(dense.data_ptr(), y.data_ptr(), x.numel(), dtype_of(x), tanh, current_stream(x)),
               "gelu_cuda_thread");
  return y;
}

Tensor backward(const Tensor& grad, const Tensor& x, bool tanh) {
  check(same_sizes(grad, x) && dtype_of(grad) == dtype_of(x), "grad and x differ in shape or dtype.");
  check(grad.is_cuda() && grad.get_device_index() == x.get_device_index(),
        "grad and x are on different devices.");
  const OnDeviceOf guard(x);
  Tensor dx = empty_as(x);
  const Tensor dense_grad = laid_out_as(grad, dx), dense = laid_out_as(x, dx);
  check_launch(gelu_thread_backward(dense_grad.data_ptr(), dense.data_ptr(), dx.data_ptr(), x.numel(),
                                    dtype_of(x), tanh, current_stream(x)),
               "gelu_cuda_thread_backward");
  return dx;
}

// The first is what autograd knows; the second is for calls without a gradient, and has no Python in its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("gelu_cuda_thread(Tensor x, bool tanh) -> Tensor");
  m.def("gelu_cuda_thread_forward(Tensor x, bool tanh) -> Tensor");
  m.def("gelu_cuda_thread_backward(Tensor grad, Tensor x, bool tanh) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("gelu_cuda_thread", TORCH_BOX(&forward));
  m.impl("gelu_cuda_thread_forward", TORCH_BOX(&forward));
  m.impl("gelu_cuda_thread_backward", TORCH_BOX(&backward));
}

}  // namespace
}  // namespace kernels
