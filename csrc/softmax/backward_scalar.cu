// How many threads share a row of the backward that is read an element a load.
#include "backward_scalar.cuh"

namespace kernels::softmax {
namespace {

// In 16 bits vectors are better from about there on: an element a load takes too many instructions.
constexpr int64_t kMostHalfCols = 32 * 5;

// Five elements of each tensor a thread, and more where a block would have more than 1024 threads.
template <typename T>
cudaError_t by_width(const GradRows<T>& all, cudaStream_t stream) {
  const int64_t cols = all.g_to_dx.cols;
  if (cols <= 8 * 5) return launch_scalar_backward<T, 8, 5>(all, stream);
  if (cols <= 16 * 5) return launch_scalar_backward<T, 16, 5>(all, stream);
  if (cols <= 32 * 5) return launch_scalar_backward<T, 32, 5>(all, stream);
  if constexpr (std::is_same_v<T, float>) {
    if (cols <= 32 * 9) return launch_scalar_backward<T, 32, 9>(all, stream);
    if (cols <= 128 * 5) return launch_scalar_backward<T, 128, 5>(all, stream);
    if (cols <= 256 * 5) return launch_scalar_backward<T, 256, 5>(all, stream);
    if (cols <= 512 * 5) return launch_scalar_backward<T, 512, 5>(all, stream);
    if (cols <= 1024 * 5) return launch_scalar_backward<T, 1024, 5>(all, stream);
    if (cols <= 512 * 17) return launch_scalar_backward<T, 512, 17>(all, stream);
    if (cols <= 1024 * 17) return launch_scalar_backward<T, 1024, 17>(all, stream);
  }
  return cudaErrorInvalidConfiguration;
}

}  // namespace

bool scalar_is_faster(const GradTask& task) {
  const Task& rows = task.g_to_dx;
  return !rows.aligned() && rows.cols <= (rows.dtype == Dtype::kFloat32 ? 1024 * 17 : kMostHalfCols);
}

cudaError_t scalar_backward(const GradTask& task) {
  return with_grad_rows(task, [&](const auto& all) { return by_width(all, task.g_to_dx.stream); });
}

}  // namespace kernels::softmax
