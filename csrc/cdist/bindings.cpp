// kernels::cdist_thread: torch's tensors in, the launcher of thread.cu out.
#include "../common/stable_cuda.h"
#include "pairs.h"
#include "thread.h"

namespace kernels {
namespace {

// [batch, n, d], [batch, m, d], both contiguous -> [batch, n, m].
Tensor forward(const Tensor& x1, const Tensor& x2, double p) {
  check_pairs(x1, x2, p, "cdist_thread");
  check(x2.is_cuda() && x2.get_device_index() == x1.get_device_index(),
        "x1 and x2 are on different devices.");
  const DeviceGuard guard(x1.get_device_index());
  const int64_t batch = x1.size(0), n = x1.size(1), m = x2.size(1), d = x1.size(2);
  Tensor out = torch::stable::new_empty(x1, {batch, n, m});
  check_launch(cdist_thread(x1.data_ptr(), x2.data_ptr(), out.data_ptr(), batch, n, m, d, p, dtype_of(x1),
                            current_stream(x1)),
               "cdist_thread");
  return out;
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) { m.def("cdist_thread(Tensor x1, Tensor x2, float p) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) { m.impl("cdist_thread", TORCH_BOX(&forward)); }

}  // namespace
}  // namespace kernels
