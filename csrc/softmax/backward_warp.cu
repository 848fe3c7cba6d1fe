// How many lanes of a warp share a row of the backward.
#include "backward_warp.cuh"

namespace kernels::softmax {
namespace {

template <typename T>
cudaError_t by_width(const GradRows<T>& all, int64_t vectors, cudaStream_t stream) {
  // Masks and shifts cost a warp as much for one lane's vector as for all: few lanes with many vectors.
  if constexpr (sizeof(T) == 2) {
    if (!all.g_to_dx.aligned && vectors > 16) {
      if (vectors <= 8 * 5) return launch_warp_backward<T, 8, 5, 1>(all, stream);
      if (vectors <= 16 * 5) return launch_warp_backward<T, 16, 5, 1>(all, stream);
    }
  }
  if (vectors <= 1) return launch_warp_backward<T, 1, 1, 2>(all, stream);
  if (vectors <= 2) return launch_warp_backward<T, 2, 1, 2>(all, stream);
  if (vectors <= 4) return launch_warp_backward<T, 4, 1, 2>(all, stream);
  if (vectors <= 8) return launch_warp_backward<T, 8, 1, 2>(all, stream);
  if (vectors <= 16) return launch_warp_backward<T, 16, 1, 2>(all, stream);
  if (vectors <= 32) return launch_warp_backward<T, 32, 1, 2>(all, stream);
  if (vectors <= 64) return launch_warp_backward<T, 32, 2, 1>(all, stream);
  if (vectors <= 128) return launch_warp_backward<T, 32, 4, 1>(all, stream);
  return launch_warp_backward<T, 32, 8, 1>(all, stream);
}

}  // namespace

cudaError_t vector_backward(const GradTask& task) {
  constexpr int64_t kMostWarpVectors = 256;  // 4 KiB of each: 64 registers of a lane
  if (scalar_is_faster(task)) return scalar_backward(task);
  const int64_t vectors = task.g_to_dx.vectors();
  if (vectors > kMostWarpVectors) return block_backward(task);
  return with_grad_rows(task, [&](const auto& all) { return by_width(all, vectors, task.g_to_dx.stream); });
}

}  // namespace kernels::softmax
