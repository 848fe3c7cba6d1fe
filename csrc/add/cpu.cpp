// Addition on the CPU: kernels::add_cpp, a loop that OpenMP spreads over cores.
#include "../common/host.h"
#include "tensors.h"

namespace kernels {
namespace {

template <typename T, bool kMixed>
void run_all(const Addition& add) {
#pragma omp parallel for if (add.n > kParallelAbove)
  for (int64_t i = 0; i < add.n; ++i) add_one<T, HostTypes, kMixed>(add, i);
}

void run(const Tensor& a, const Tensor& b, Tensor out) {
  check(a.is_cpu() && b.is_cpu(), "a, b and out are on different devices.");
  const Addition add = addition_of(a, b, out);
  with_any(add.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    is_mixed(add) ? run_all<T, true>(add) : run_all<T, false>(add);
  });
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) { m.def("add_cpp(Tensor a, Tensor b, Tensor(a!) out) -> ()"); }

STABLE_TORCH_LIBRARY_IMPL(kernels, CPU, m) { m.impl("add_cpp", TORCH_BOX(&run)); }

}  // namespace
}  // namespace kernels
