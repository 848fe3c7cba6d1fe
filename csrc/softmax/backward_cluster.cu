// How many blocks share a row of the backward in registers.
#include "backward_block.cuh"

namespace kernels::softmax {
namespace {

constexpr int kVectors = 4;
static_assert(kMostClusterVectors == int64_t{kMaxCluster} * 1024 * kVectors, "What by_width can hold.");

// Blocks of 512 threads, of which an SM has two, while 16 of them hold the row.
template <typename T>
cudaError_t by_width(const GradRows<T>& all, int64_t vectors, cudaStream_t stream) {
  if (vectors > kMaxCluster * 512 * kVectors) {
    return launch_cluster_backward<T, 1024, kVectors>(all, kMaxCluster, stream);
  }
  int cluster = 1;
  while (cluster * 512 * kVectors < vectors) cluster *= 2;
  return launch_cluster_backward<T, 512, kVectors>(all, cluster, stream);
}

}  // namespace

cudaError_t cluster_backward(const GradTask& task) {
  const int64_t vectors = task.g_to_dx.vectors();
  if (vectors > kMostClusterVectors) return cudaErrorInvalidConfiguration;
  return with_grad_rows(task, [&](const auto& all) { return by_width(all, vectors, task.g_to_dx.stream); });
}

}  // namespace kernels::softmax
