// kernels::cdist_cpp: distances on the CPU, rows of the output shared out among cores by OpenMP.
#include <vector>

#include "../common/host.h"
#include "norm.h"
#include "pairs.h"

namespace kernels {
namespace {

// x [m, d] -> [d, m] in the type of the sums, so that the inner loop below reads neighbours.
template <typename T>
std::vector<Compute<T>> columns_of(const T* x, int64_t m, int64_t d) {
  std::vector<Compute<T>> columns(m * d);
  for (int64_t j = 0; j < m; ++j) {
    for (int64_t k = 0; k < d; ++k) columns[k * m + j] = convert<Compute<T>>(x[j * d + k]);
  }
  return columns;
}

// Distances from one point to m others; `sums` is room for m.
template <Norm kNorm, typename T, typename C = Compute<T>>
void cdist_of_row(const T* point, const C* columns, T* out, int64_t m, int64_t d, C p, C* sums) {
  for (int64_t j = 0; j < m; ++j) sums[j] = 0;
  for (int64_t k = 0; k < d; ++k) {
    const C value = convert<C>(point[k]);
    const C* column = columns + k * m;
    for (int64_t j = 0; j < m; ++j) sums[j] = Distance<C, kNorm>::add(sums[j], value - column[j], p);
  }
  for (int64_t j = 0; j < m; ++j) out[j] = convert<T>(Distance<C, kNorm>::root(sums[j], p));
}

template <Norm kNorm, typename T>
void cdist_of_batch(const T* x1, const T* x2, T* out, int64_t n, int64_t m, int64_t d, Compute<T> p) {
  const auto columns = columns_of(x2, m, d);
#pragma omp parallel if (n * m > kParallelAbove)
  {
    std::vector<Compute<T>> sums(m);
#pragma omp for
    for (int64_t i = 0; i < n; ++i) {
      cdist_of_row<kNorm>(x1 + i * d, columns.data(), out + i * m, m, d, p, sums.data());
    }
  }
}

// [batch, n, d], [batch, m, d], both contiguous -> [batch, n, m].
Tensor forward(const Tensor& x1, const Tensor& x2, double p) {
  check_pairs(x1, x2, p, "cdist_cpp");
  check(x2.is_cpu(), "x1 and x2 are on different devices.");
  const int64_t batch = x1.size(0), n = x1.size(1), m = x2.size(1), d = x1.size(2);
  Tensor out = torch::stable::new_empty(x1, {batch, n, m});
  with_floating(dtype_of(x1), [&](auto type) {
    using T = typename decltype(type)::type;
    const T *first = static_cast<const T*>(x1.data_ptr()), *second = static_cast<const T*>(x2.data_ptr());
    T* result = static_cast<T*>(out.data_ptr());
    with_norm(p, [&](auto norm) {
      for (int64_t b = 0; b < batch; ++b) {
        cdist_of_batch<decltype(norm)::value>(first + b * n * d, second + b * m * d, result + b * n * m, n, m,
                                              d, static_cast<Compute<T>>(p));
      }
    });
  });
  return out;
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) { m.def("cdist_cpp(Tensor x1, Tensor x2, float p) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(kernels, CPU, m) { m.impl("cdist_cpp", TORCH_BOX(&forward)); }

}  // namespace
}  // namespace kernels
