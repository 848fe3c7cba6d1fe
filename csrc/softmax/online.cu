// Rows of any width on any card.
#include "forward.h"
#include "online.cuh"

namespace kernels::softmax {

cudaError_t online_rows(const Task& task) {
  return with_rows(task, [&](const auto& all) { return launch_online<1024>(all, task.stream); });
}

}  // namespace kernels::softmax
