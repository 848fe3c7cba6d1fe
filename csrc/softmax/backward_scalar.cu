// How many threads share a row of the backward that is read an element a load.
#include "backward_scalar.cuh"

namespace kernels::softmax {
namespace {

// Five elements of each tensor a thread, and more where a block would have more than 1024 threads.
cudaError_t by_width(const GradRows<float>& all, cudaStream_t stream) {
  const int64_t cols = all.g_to_dx.cols;
  if (cols <= 8 * 5) return launch_scalar_backward<float, 8, 5>(all, stream);
  if (cols <= 16 * 5) return launch_scalar_backward<float, 16, 5>(all, stream);
  if (cols <= 32 * 5) return launch_scalar_backward<float, 32, 5>(all, stream);
  if (cols <= 32 * 9) return launch_scalar_backward<float, 32, 9>(all, stream);
  if (cols <= 128 * 5) return launch_scalar_backward<float, 128, 5>(all, stream);
  if (cols <= 256 * 5) return launch_scalar_backward<float, 256, 5>(all, stream);
  if (cols <= 512 * 5) return launch_scalar_backward<float, 512, 5>(all, stream);
  if (cols <= 1024 * 5) return launch_scalar_backward<float, 1024, 5>(all, stream);
  if (cols <= 512 * 17) return launch_scalar_backward<float, 512, 17>(all, stream);
  return launch_scalar_backward<float, 1024, 17>(all, stream);
}

}  // namespace

bool scalar_is_faster(const GradTask& task) {
  return task.g_to_dx.dtype == Dtype::kFloat32 && !task.g_to_dx.aligned() &&
         task.g_to_dx.cols <= kMostScalarCols;
}

cudaError_t scalar_backward(const GradTask& task) {
  const Task& rows = task.g_to_dx;
  if (rows.dtype != Dtype::kFloat32 || rows.cols > kMostScalarCols) return cudaErrorInvalidConfiguration;
  return with_grad_rows(task, [&](const auto& all) {
    if constexpr (std::is_same_v<decltype(all), const GradRows<float>&>) return by_width(all, rows.stream);
    return cudaErrorInvalidValue;
  });
}

}  // namespace kernels::softmax
