// How many blocks share a row in shared memory.
#include "staged.cuh"

#include <algorithm>

#include "current_device.h"
#include "forward.h"

namespace kernels::softmax {
namespace {

constexpr int kThreads = 256, kBatch = 4;
constexpr int kBlocks = 5;                  // to an SM, that registers are kept for
constexpr int64_t kSliceBytes = 32 * 1024;  // to aim at
constexpr int64_t kLeastBytes = 8 * 1024;   // less is not worth a block
constexpr int64_t kMostBytes = 224 * 1024;  // of a slice
constexpr int kOwnBytes = 2048;             // of a block beside it
static_assert(sizeof(Barrier) + sizeof(RowPairs<kThreads / kWarp>) + kLine * 16 <= kOwnBytes);

}  // namespace

Staged staged_for(const Task& task, int cluster) {
  if (!has_clusters() || !task.known()) return {};
  const auto slice_of = [&](int64_t blocks) { return ceil_div(task.line_vectors(), blocks * kLine) * kLine; };
  if (cluster == 0) {
    const int blocks = device_attribute(cudaDevAttrMultiProcessorCount);
    const auto small = [&] {  // enough, and where there are few rows also enough blocks
      const int64_t bytes = slice_of(cluster) * 16 - 128;
      return bytes <= (task.rows * cluster < blocks ? kLeastBytes : kSliceBytes);
    };
    const int most = most_clustered();
    for (cluster = 1; cluster < most && !small();) cluster *= 2;
  }
  const int64_t room = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kOwnBytes;
  if (cluster < 1 || cluster > kMaxCluster || slice_of(cluster) * 16 > std::min(kMostBytes, room)) return {};
  return {cluster, static_cast<int>(slice_of(cluster))};
}

cudaError_t staged_rows(const Task& task, const Staged& staged) {
  if (staged.cluster == 0) return cudaErrorInvalidConfiguration;
  return with_rows(task, [&](const auto& all) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(all.x)>>;
    const auto [cluster, slice] = staged;
    return task.shifted()
               ? launch_staged<T, kThreads, kBlocks, kBatch, true>(all, cluster, slice, task.stream)
               : launch_staged<T, kThreads, kBlocks, kBatch, false>(all, cluster, slice, task.stream);
  });
}

}  // namespace kernels::softmax
