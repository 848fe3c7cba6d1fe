// kernels::softmax_cpp and its backward: softmax on the CPU, rows shared out among cores by OpenMP.
#include <cmath>
#include <limits>
#include <vector>

#include "../common/host.h"

namespace kernels {
namespace {

// `powers` is room for one row. The sum is kept in double: a float would lose digits over a million columns.
template <typename T, typename C = Compute<T>>
void softmax_of_row(const T* x, T* y, int64_t cols, C* powers) {
  C largest = -std::numeric_limits<C>::infinity();
  for (int64_t c = 0; c < cols; ++c) {
    const C value = convert<C>(x[c]);
    largest = value > largest ? value : largest;
  }
  double sum = 0;
  for (int64_t c = 0; c < cols; ++c) {
    powers[c] = std::exp(convert<C>(x[c]) - largest);
    sum += powers[c];
  }
  const C scale = static_cast<C>(1 / sum);
  for (int64_t c = 0; c < cols; ++c) y[c] = convert<T>(powers[c] * scale);
}

template <typename T>
void softmax_of_rows(const T* x, T* y, int64_t rows, int64_t cols) {
#pragma omp parallel if (rows * cols > kParallelAbove)
  {
    std::vector<Compute<T>> powers(cols);
#pragma omp for
    for (int64_t row = 0; row < rows; ++row) {
      softmax_of_row(x + row * cols, y + row * cols, cols, powers.data());
    }
  }
}

// dx = y * (g - sum(g * y)) for each row.
template <typename T, typename C = Compute<T>>
void gradient_of_rows(const T* g, const T* y, T* dx, int64_t rows, int64_t cols) {
#pragma omp parallel for if (rows * cols > kParallelAbove)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * cols;
    double sum = 0;
    for (int64_t c = first; c < first + cols; ++c) sum += convert<double>(g[c]) * convert<double>(y[c]);
    const C dot = static_cast<C>(sum);
    for (int64_t c = first; c < first + cols; ++c) {
      dx[c] = convert<T>(convert<C>(y[c]) * (convert<C>(g[c]) - dot));
    }
  }
}

// Along the last dim of a contiguous tensor.
Tensor forward(const Tensor& x) {
  check(x.dim() > 0 && x.is_contiguous(), "softmax_cpp takes a contiguous tensor of one dim or more.");
  Tensor y = torch::stable::empty_like(x);
  const int64_t cols = x.size(x.dim() - 1);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols;
  with_floating(dtype_of(x), [&](auto type) {
    using T = typename decltype(type)::type;
    softmax_of_rows(static_cast<const T*>(x.data_ptr()), static_cast<T*>(y.data_ptr()), rows, cols);
  });
  return y;
}

// `y`: what the forward returned.
Tensor backward(const Tensor& grad, const Tensor& y) {
  check(y.dim() > 0 && y.is_contiguous(), "softmax_cpp_backward takes a contiguous y of one dim or more.");
  check(same_sizes(grad, y) && dtype_of(grad) == dtype_of(y), "grad and y differ in shape or dtype.");
  check(grad.is_cpu(), "grad and y are on different devices.");
  const Tensor dense = laid_out_as(grad, y);
  Tensor dx = torch::stable::empty_like(y);
  const int64_t cols = y.size(y.dim() - 1);
  const int64_t rows = cols == 0 ? 0 : y.numel() / cols;
  with_floating(dtype_of(y), [&](auto type) {
    using T = typename decltype(type)::type;
    gradient_of_rows(static_cast<const T*>(dense.data_ptr()), static_cast<const T*>(y.data_ptr()),
                     static_cast<T*>(dx.data_ptr()), rows, cols);
  });
  return dx;
}

// The first is what autograd knows; the second is for calls without a gradient, and has no Python in its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("softmax_cpp(Tensor x) -> Tensor");
  m.def("softmax_cpp_forward(Tensor x) -> Tensor");
  m.def("softmax_cpp_backward(Tensor grad, Tensor y) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CPU, m) {
  m.impl("softmax_cpp", TORCH_BOX(&forward));
  m.impl("softmax_cpp_forward", TORCH_BOX(&forward));
  m.impl("softmax_cpp_backward", TORCH_BOX(&backward));
}

}  // namespace
}  // namespace kernels
