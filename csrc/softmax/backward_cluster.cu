// How many blocks share a row of the backward in registers.
#include "backward_block.cuh"

namespace kernels::softmax {
namespace {

constexpr int kVectors = 4;

template <int kThreads, typename T>
cudaError_t by_width(const GradRows<T>& all, int64_t vectors, int blocks, cudaStream_t stream) {
  if (blocks == 0) {
    for (blocks = 1; blocks * kThreads * kVectors < vectors;) blocks *= 2;
  }
  if (blocks > kMaxCluster || blocks * kThreads * kVectors < vectors) return cudaErrorInvalidConfiguration;
  return launch_cluster_backward<T, kThreads, kVectors>(all, blocks, stream);
}

}  // namespace

cudaError_t cluster_backward(const GradTask& task, int blocks, int threads) {
  const int64_t vectors = task.g_to_dx.vectors();
  const auto stream = task.g_to_dx.stream;
  // As few blocks as may be, but eight of 512 threads rather than four of 1024, where an SM has two of them.
  const bool eight = vectors > 2 * 1024 * kVectors && vectors <= 8 * 512 * kVectors;
  if (threads == 0) threads = eight && (blocks == 0 || blocks >= 8) ? 512 : 1024;
  return with_grad_rows(task, [&](const auto& all) {
    if (threads == 256) return by_width<256>(all, vectors, blocks, stream);
    if (threads == 512) return by_width<512>(all, vectors, blocks, stream);
    if (threads == 1024) return by_width<1024>(all, vectors, blocks, stream);
    return cudaErrorInvalidValue;
  });
}

}  // namespace kernels::softmax
