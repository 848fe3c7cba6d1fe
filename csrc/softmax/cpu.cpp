// kernels::softmax_cpp: softmax on the CPU, rows shared out among cores by OpenMP.
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

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) { m.def("softmax_cpp(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(kernels, CPU, m) { m.impl("softmax_cpp", TORCH_BOX(&forward)); }

}  // namespace
}  // namespace kernels
