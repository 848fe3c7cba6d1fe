// How many lanes of a warp share a row.
#include "forward.h"
#include "warp.cuh"

namespace kernels::softmax {
namespace {

template <typename T>
cudaError_t by_width(const Rows<T>& all, int64_t vectors, cudaStream_t stream) {
  if (vectors <= 1) return launch_warp<T, 1, 1, 2>(all, stream);
  if (vectors <= 2) return launch_warp<T, 2, 1, 2>(all, stream);
  if (vectors <= 4) return launch_warp<T, 4, 1, 2>(all, stream);
  if (vectors <= 8) return launch_warp<T, 8, 1, 2>(all, stream);
  if (vectors <= 16) return launch_warp<T, 16, 1, 2>(all, stream);
  if (vectors <= 32) return launch_warp<T, 32, 1, 2>(all, stream);
  if (vectors <= 64) return launch_warp<T, 32, 2, 1>(all, stream);
  if (vectors <= 128) return launch_warp<T, 32, 4, 1>(all, stream);
  return launch_warp<T, 32, 8, 1>(all, stream);
}

}  // namespace

cudaError_t vector_rows(const Task& task) {
  const int64_t vectors = task.vectors();
  // 32 elements are what a lane holds beside others: a small grid gains more from skipping the barrier of a
  // block (2.86 us, not 2.97, for 1024 x 1024 float32) than it loses.
  if (vectors > (task.dtype == Dtype::kFloat32 ? 256 : 128)) return block_rows(task);
  return with_rows(task, [&](const auto& all) { return by_width(all, vectors, task.stream); });
}

}  // namespace kernels::softmax
