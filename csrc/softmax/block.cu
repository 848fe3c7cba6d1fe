// Which block holds a row in registers.
#include "block.cuh"
#include "forward.h"

namespace kernels::softmax {
namespace {

// A thread of a block gets as few vectors as hold the row.
template <typename T>
cudaError_t of_128(const Rows<T>& all, int64_t vectors, cudaStream_t stream) {
  if (vectors <= 128 * 2) return launch_block<T, 128, 2>(all, stream);
  if (vectors <= 128 * 3) return launch_block<T, 128, 3>(all, stream);
  if (vectors <= 128 * 4) return launch_block<T, 128, 4>(all, stream);
  if (vectors <= 128 * 5) return launch_block<T, 128, 5>(all, stream);
  if (vectors <= 128 * 6) return launch_block<T, 128, 6>(all, stream);
  if (vectors <= 128 * 8) return launch_block<T, 128, 8>(all, stream);
  return launch_block<T, 128, 9>(all, stream);
}

cudaError_t of_many(const Rows<float>& all, int64_t vectors, cudaStream_t stream) {
  if (vectors <= 512 * 3) return launch_block<float, 512, 3>(all, stream);
  if (vectors <= 512 * 4) return launch_block<float, 512, 4>(all, stream);
  if (vectors <= 512 * 6) return launch_block<float, 512, 6>(all, stream);
  if (vectors <= 512 * 8) return launch_block<float, 512, 8>(all, stream);
  return launch_block<float, 512, 9>(all, stream);
}

// 16-bit elements take twice the registers a vector, so twice the threads share a row.
template <typename T>
cudaError_t of_many(const Rows<T>& all, int64_t vectors, cudaStream_t stream) {
  if (vectors <= 512 * 3) return launch_block<T, 512, 3>(all, stream);
  if (vectors <= 512 * 4) return launch_block<T, 512, 4>(all, stream);
  if (vectors <= 1024 * 3) return launch_block<T, 1024, 3>(all, stream);
  if (vectors <= 1024 * 4) return launch_block<T, 1024, 4>(all, stream);
  return launch_block<T, 1024, 5>(all, stream);
}

}  // namespace

cudaError_t block_rows(const Task& task) {
  const int64_t vectors = task.vectors();
  if (vectors > kMostVectors) return cudaErrorInvalidConfiguration;
  return with_rows(task, [&](const auto& all) {
    return vectors <= 128 * 9 ? of_128(all, vectors, task.stream) : of_many(all, vectors, task.stream);
  });
}

}  // namespace kernels::softmax
