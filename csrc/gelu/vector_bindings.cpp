// kernels::gelu_cuda_vector and its backward: torch's tensors in, launchers of vector.cu out.
#include "../common/stable_cuda.h"
#include "vector.h"

namespace kernels {
namespace {

Tensor forward(const Tensor& x, bool tanh, int64_t loads, int64_t threads) {
  const OnDeviceOf guard(x);
  Tensor y = empty_as(x);
  const Tensor dense = laid_out_as(x, y);
  check_launch(gelu_vector(dense.data_ptr(), y.data_ptr(), x.numel(), dtype_of(x), tanh, {loads, threads},
                           current_stream(x)),
               "gelu_cuda_vector");
  return y;
}

Tensor backward(const Tensor& grad, const Tensor& x, bool tanh, int64_t loads, int64_t threads) {
  check(same_sizes(grad, x) && dtype_of(grad) == dtype_of(x), "grad and x differ in shape or dtype.");
  check(grad.is_cuda() && grad.get_device_index() == x.get_device_index(),
        "grad and x are on different devices.");
  const OnDeviceOf guard(x);
  Tensor dx = empty_as(x);
  const Tensor dense_grad = laid_out_as(grad, dx), dense = laid_out_as(x, dx);
  check_launch(gelu_vector_backward(dense_grad.data_ptr(), dense.data_ptr(), dx.data_ptr(), x.numel(),
                                    dtype_of(x), tanh, {loads, threads}, current_stream(x)),
               "gelu_cuda_vector_backward");
  return dx;
}

// The first is what autograd knows; the second is for calls without a gradient, and has no Python in its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("gelu_cuda_vector(Tensor x, bool tanh, int loads=0, int threads=128) -> Tensor");
  m.def("gelu_cuda_vector_forward(Tensor x, bool tanh, int loads=0, int threads=128) -> Tensor");
  m.def(
      "gelu_cuda_vector_backward(Tensor grad, Tensor x, bool tanh, int loads=0, int threads=128) -> "
      "Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("gelu_cuda_vector", TORCH_BOX(&forward));
  m.impl("gelu_cuda_vector_forward", TORCH_BOX(&forward));
  m.impl("gelu_cuda_vector_backward", TORCH_BOX(&backward));
}

}  // namespace
}  // namespace kernels
