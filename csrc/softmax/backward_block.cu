// Which block holds a row of the backward in registers.
#include "backward_block.cuh"

namespace kernels::softmax {
namespace {

// As few threads as hold a row with five vectors of each tensor, then as few vectors. Five are for rows that
// are a little wider than a power of two: twice the threads with three would leave a third of them idle.
template <typename T>
cudaError_t by_width(const GradRows<T>& all, int64_t vectors, cudaStream_t stream) {
  if (vectors <= 128 * 3) return launch_block_backward<T, 128, 3>(all, stream);
  if (vectors <= 128 * 4) return launch_block_backward<T, 128, 4>(all, stream);
  if (vectors <= 128 * 5) return launch_block_backward<T, 128, 5>(all, stream);
  if (vectors <= 256 * 3) return launch_block_backward<T, 256, 3>(all, stream);
  if (vectors <= 256 * 4) return launch_block_backward<T, 256, 4>(all, stream);
  if (vectors <= 256 * 5) return launch_block_backward<T, 256, 5>(all, stream);
  if (vectors <= 512 * 3) return launch_block_backward<T, 512, 3>(all, stream);
  if (vectors <= 512 * 4) return launch_block_backward<T, 512, 4>(all, stream);
  if (vectors <= 512 * 5) return launch_block_backward<T, 512, 5>(all, stream);
  if (vectors <= 1024 * 3) return launch_block_backward<T, 1024, 3>(all, stream);
  if (vectors <= 1024 * 4) return launch_block_backward<T, 1024, 4>(all, stream);
  return launch_block_backward<T, 1024, 5>(all, stream);
}

}  // namespace

cudaError_t block_backward(const GradTask& task) {
  const int64_t vectors = task.g_to_dx.vectors();
  if (vectors > kMostVectors) return cudaErrorInvalidConfiguration;
  return with_grad_rows(task, [&](const auto& all) { return by_width(all, vectors, task.g_to_dx.stream); });
}

}  // namespace kernels::softmax
