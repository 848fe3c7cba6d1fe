// How many blocks share a row in registers.
#include "block.cuh"
#include "forward.h"

namespace kernels::softmax {
namespace {

template <typename T, int kThreads, int kVectors, bool kAligned>
cudaError_t by_width(const Rows<T>& all, int64_t vectors, int blocks, cudaStream_t stream) {
  if (blocks == 0) {
    for (blocks = 1; blocks * kThreads * kVectors < vectors;) blocks *= 2;
  }
  if (blocks > kMaxCluster || blocks * kThreads * kVectors < vectors) return cudaErrorInvalidConfiguration;
  return launch_cluster<T, kThreads, kVectors, kAligned>(all, blocks, stream);
}

// A thread holds 32 elements, or 16 where 1024 threads need no more, or would not have the registers for
// more.
template <bool kAligned, typename T>
cudaError_t by_block(const Rows<T>& all, int64_t vectors, int blocks, int threads, cudaStream_t stream) {
  constexpr int kFull = 32 / kPerVector<T>;
  if (threads == 256) return by_width<T, 256, kFull, kAligned>(all, vectors, blocks, stream);
  if (threads == 0 || threads == 512) return by_width<T, 512, kFull, kAligned>(all, vectors, blocks, stream);
  if (threads != 1024) return cudaErrorInvalidValue;
  if constexpr (kAligned) {
    if (vectors > blocks * 1024 * kFull / 2)
      return by_width<T, 1024, kFull, true>(all, vectors, blocks, stream);
  }
  return by_width<T, 1024, kFull / 2, kAligned>(all, vectors, blocks, stream);
}

}  // namespace

cudaError_t cluster_rows(const Task& task, int blocks, int threads) {
  return with_rows(task, [&](const auto& all) {
    if (all.aligned) return by_block<true>(all, task.vectors(), blocks, threads, task.stream);
    return by_block<false>(all, task.vectors(), blocks, threads, task.stream);
  });
}

}  // namespace kernels::softmax
