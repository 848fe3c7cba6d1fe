// Rows of any width on any card, backward.
#include "backward_online.cuh"

namespace kernels::softmax {

cudaError_t online_backward(const GradTask& task) {
  return with_grad_rows(
      task, [&](const auto& all) { return launch_online_backward<1024, 2>(all, task.g_to_dx.stream); });
}

}  // namespace kernels::softmax
