// kernels::add_cuda_thread and its gradient: torch's tensors in, the launchers of thread.cu and sum.cu out.
#include "sum_tensors.h"
#include "thread.h"

namespace kernels {
namespace {

Tensor run(const Tensor& a, const Tensor& b, std::optional<ScalarType> dtype) {
  const OnDeviceOf guard(a);
  const Prepared ready = prepare(a, b, dtype);
  check_launch(add_thread(ready.add, current_stream(ready.out)), "add_cuda_thread");
  return ready.out;
}

// The first is what autograd knows; the second is for calls without a gradient, and has no Python in its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("add_cuda_thread(Tensor a, Tensor b, ScalarType? dtype=None) -> Tensor");
  m.def("add_cuda_thread_forward(Tensor a, Tensor b, ScalarType? dtype=None) -> Tensor");
  m.def("add_cuda_thread_sum(Tensor grad, int outer, int reduce, int inner, ScalarType dtype) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("add_cuda_thread", TORCH_BOX(&run));
  m.impl("add_cuda_thread_forward", TORCH_BOX(&run));
  m.impl("add_cuda_thread_sum", TORCH_BOX(&sum_on_device));
}

}  // namespace
}  // namespace kernels
