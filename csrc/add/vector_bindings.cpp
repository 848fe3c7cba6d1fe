// kernels::add_cuda_vector and its gradient: torch's tensors in, the launchers of vector.cu, thread.cu (for
// what is neither rows nor one dtype) and sum.cu out.
#include "sum_tensors.h"
#include "thread.h"
#include "vector.h"

namespace kernels {
namespace {

Tensor run(const Tensor& a, const Tensor& b, std::optional<ScalarType> dtype, int64_t loads,
           int64_t threads) {
  const OnDeviceOf guard(a);
  const Prepared ready = prepare(a, b, dtype);
  const cudaStream_t stream = current_stream(ready.out);
  check_launch(add_is_vectorizable(ready.add) ? add_vector(ready.add, {loads, threads}, stream)
                                              : add_thread(ready.add, stream),
               "add_cuda_vector");
  return ready.out;
}

// The first is what autograd knows; the second is for calls without a gradient, and has no Python in its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def(
      "add_cuda_vector(Tensor a, Tensor b, ScalarType? dtype=None, int loads=2, int threads=128) -> Tensor");
  m.def(
      "add_cuda_vector_forward(Tensor a, Tensor b, ScalarType? dtype=None, int loads=2, int threads=128) -> "
      "Tensor");
  m.def("add_cuda_vector_sum(Tensor grad, int outer, int reduce, int inner, ScalarType dtype) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("add_cuda_vector", TORCH_BOX(&run));
  m.impl("add_cuda_vector_forward", TORCH_BOX(&run));
  m.impl("add_cuda_vector_sum", TORCH_BOX(&sum_on_device));
}

}  // namespace
}  // namespace kernels
