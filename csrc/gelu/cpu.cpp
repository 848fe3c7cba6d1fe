// GeLU on the CPU: kernels::gelu_cpp and its backward, a loop that OpenMP spreads over cores.
#include "../common/host.h"
#include "gelu.h"

namespace kernels {
namespace {

template <typename T, bool kTanh>
void run_forward(const T* x, T* y, int64_t n) {
#pragma omp parallel for if (n > kParallelAbove)
  for (int64_t i = 0; i < n; ++i) {
    y[i] = convert<T>(Gelu<Compute<T>, kTanh>::forward(convert<Compute<T>>(x[i])));
  }
}

template <typename T, bool kTanh>
void run_backward(const T* grad, const T* x, T* dx, int64_t n) {
#pragma omp parallel for if (n > kParallelAbove)
  for (int64_t i = 0; i < n; ++i) {
    const auto slope = Gelu<Compute<T>, kTanh>::derivative(convert<Compute<T>>(x[i]));
    dx[i] = convert<T>(convert<Compute<T>>(grad[i]) * slope);
  }
}

Tensor forward(const Tensor& x, bool tanh) {
  Tensor y = empty_as(x);
  const Tensor dense = laid_out_as(x, y);
  with_floating(dtype_of(x), [&](auto type) {
    using T = typename decltype(type)::type;
    auto run = tanh ? run_forward<T, true> : run_forward<T, false>;
    run(static_cast<const T*>(dense.data_ptr()), static_cast<T*>(y.data_ptr()), x.numel());
  });
  return y;
}

Tensor backward(const Tensor& grad, const Tensor& x, bool tanh) {
  check(same_sizes(grad, x) && dtype_of(grad) == dtype_of(x), "grad and x differ in shape or dtype.");
  check(grad.is_cpu(), "grad and x are on different devices.");
  Tensor dx = empty_as(x);
  const Tensor dense_grad = laid_out_as(grad, dx), dense = laid_out_as(x, dx);
  with_floating(dtype_of(x), [&](auto type) {
    using T = typename decltype(type)::type;
    auto run = tanh ? run_backward<T, true> : run_backward<T, false>;
    run(static_cast<const T*>(dense_grad.data_ptr()), static_cast<const T*>(dense.data_ptr()),
        static_cast<T*>(dx.data_ptr()), x.numel());
  });
  return dx;
}

// The first is what autograd knows; the second is for calls without a gradient, and has no Python in its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("gelu_cpp(Tensor x, bool tanh) -> Tensor");
  m.def("gelu_cpp_forward(Tensor x, bool tanh) -> Tensor");
  m.def("gelu_cpp_backward(Tensor grad, Tensor x, bool tanh) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CPU, m) {
  m.impl("gelu_cpp", TORCH_BOX(&forward));
  m.impl("gelu_cpp_forward", TORCH_BOX(&forward));
  m.impl("gelu_cpp_backward", TORCH_BOX(&backward));
}

}  // namespace
}  // namespace kernels
