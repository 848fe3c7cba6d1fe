// How many blocks share a row in registers.
#include "block.cuh"
#include "forward.h"

namespace kernels::softmax {
namespace {

constexpr int kThreads = 512;

template <typename T>
cudaError_t by_width(const Rows<T>& all, int64_t vectors, cudaStream_t stream) {
  constexpr int kVectors = sizeof(T) == 4 ? 8 : 4;  // 32 elements a thread
  int cluster = 1;
  while (cluster * kThreads * kVectors < vectors) cluster *= 2;
  if (cluster > kMaxCluster) return cudaErrorInvalidConfiguration;
  return launch_cluster<T, kThreads, kVectors>(all, cluster, stream);
}

}  // namespace

cudaError_t cluster_rows(const Task& task) {
  return with_rows(task, [&](const auto& all) { return by_width(all, task.vectors(), task.stream); });
}

}  // namespace kernels::softmax
