// Which warps and blocks hold a row in registers.
#include "block.cuh"
#include "forward.h"
#include "warp.cuh"

namespace kernels::softmax {
namespace {

// A thread of a block gets as few vectors as hold the row.
template <typename T, int kThreads>
cudaError_t by_vectors(const Rows<T>& all, int64_t vectors, cudaStream_t stream) {
  switch (ceil_div(vectors, kThreads)) {
    case 1:
    case 2:
      return launch_block<T, kThreads, 2>(all, stream);
    case 3:
      return launch_block<T, kThreads, 3>(all, stream);
    case 4:
      return launch_block<T, kThreads, 4>(all, stream);
    case 5:
      return launch_block<T, kThreads, 5>(all, stream);
    case 6:
      return launch_block<T, kThreads, 6>(all, stream);
    case 7:
    case 8:
      return launch_block<T, kThreads, 8>(all, stream);
    default:
      return launch_block<T, kThreads, 9>(all, stream);
  }
}

// The widest: 16-bit elements take twice the registers a vector, so twice the threads share a row.
template <typename T>
cudaError_t by_vectors_of_many(const Rows<T>& all, int64_t vectors, cudaStream_t stream) {
  if constexpr (sizeof(T) == 4) return by_vectors<T, 512>(all, vectors, stream);
  if (vectors <= 512 * 3) return launch_block<T, 512, 3>(all, stream);
  if (vectors <= 512 * 4) return launch_block<T, 512, 4>(all, stream);
  if (vectors <= 1024 * 3) return launch_block<T, 1024, 3>(all, stream);
  if (vectors <= 1024 * 4) return launch_block<T, 1024, 4>(all, stream);
  return launch_block<T, 1024, 5>(all, stream);
}

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
  if (sizeof(T) == 4 && vectors <= 256) return launch_warp<T, 32, 8, 1>(all, stream);
  if (vectors <= 128 * 9) return by_vectors<T, 128>(all, vectors, stream);
  if (vectors <= kMostVectors) return by_vectors_of_many<T>(all, vectors, stream);
  return cudaErrorInvalidConfiguration;
}

}  // namespace

cudaError_t vector_rows(const Task& task) {
  return with_rows(task, [&](const auto& all) { return by_width(all, task.vectors(), task.stream); });
}

}  // namespace kernels::softmax
