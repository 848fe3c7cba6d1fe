// kernels::add_cuda_thread: torch's tensors in, the launcher of thread.cu out.
#include "../common/stable_cuda.h"
#include "tensors.h"
#include "thread.h"

namespace kernels {
namespace {

void run(const Tensor& a, const Tensor& b, Tensor out) {
  for (const Tensor& t : {a, b}) {
    check(t.is_cuda() && t.get_device_index() == out.get_device_index(),
          "a, b and out are on different devices.");
  }
  const DeviceGuard guard(out.get_device_index());
  check_launch(add_thread(addition_of(a, b, out), current_stream(out)), "add_cuda_thread");
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("add_cuda_thread(Tensor a, Tensor b, Tensor(a!) out) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) { m.impl("add_cuda_thread", TORCH_BOX(&run)); }

}  // namespace
}  // namespace kernels
