// Addition on the CPU: kernels::add_cpp and its gradient, loops that OpenMP spreads over cores.
#include "../common/host.h"
#include "broadcast.h"
#include "sum.h"

namespace kernels {
namespace {

template <typename T, bool kMixed>
void run_all(const Addition& add) {
#pragma omp parallel for if (add.n > kParallelAbove)
  for (int64_t i = 0; i < add.n; ++i) add_one<T, HostTypes, kMixed>(add, i);
}

Tensor run(const Tensor& a, const Tensor& b, std::optional<ScalarType> dtype) {
  const Prepared ready = prepare(a, b, dtype);
  with_any(ready.add.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    is_mixed(ready.add) ? run_all<T, true>(ready.add) : run_all<T, false>(ready.add);
  });
  return ready.out;
}

// In double, so that the order of the sum is nobody's error.
template <typename T, typename To>
void sum_all(const Sum& sum) {
  const T* grad = static_cast<const T*>(sum.grad);
  To* out = static_cast<To*>(sum.out);
#pragma omp parallel for if (sum.outer * sum.reduce * sum.inner > kParallelAbove)
  for (int64_t i = 0; i < sum.outer * sum.inner; ++i) {
    const T* from = grad + i / sum.inner * sum.reduce * sum.inner + i % sum.inner;
    double total = 0;
    for (int64_t r = 0; r < sum.reduce; ++r) total += convert<double>(from[r * sum.inner]);
    out[i] = convert<To>(total);
  }
}

Tensor sum_on_host(const Tensor& grad, int64_t outer, int64_t reduce, int64_t inner, ScalarType dtype) {
  check(grad.is_contiguous() && grad.numel() == outer * reduce * inner,
        "grad must be contiguous, with outer * reduce * inner elements.");
  const int64_t one = 1, size = outer * inner;
  Tensor out = empty(1, &size, &one, dtype, grad);
  const Sum sum{grad.data_ptr(), dtype_of(grad), out.data_ptr(), dtype_of(out), outer, reduce, inner, 1};
  with_floating(sum.from, [&](auto from) {
    with_floating(sum.to,
                  [&](auto to) { sum_all<typename decltype(from)::type, typename decltype(to)::type>(sum); });
  });
  return out;
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("add_cpp(Tensor a, Tensor b, ScalarType? dtype=None) -> Tensor");
  m.def("add_cpp_forward(Tensor a, Tensor b, ScalarType? dtype=None) -> Tensor");
  m.def("add_cpp_sum(Tensor grad, int outer, int reduce, int inner, ScalarType dtype) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CPU, m) {
  m.impl("add_cpp", TORCH_BOX(&run));
  m.impl("add_cpp_forward", TORCH_BOX(&run));
  m.impl("add_cpp_sum", TORCH_BOX(&sum_on_host));
}

}  // namespace
}  // namespace kernels
