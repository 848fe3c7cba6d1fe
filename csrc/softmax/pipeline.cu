// How many blocks share a row, and how many rows are on their way.
#include "pipeline.cuh"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "current_device.h"
#include "forward.h"

namespace kernels::softmax {
namespace {

constexpr int kReservedBytes = 2048;  // of a block: its barriers and pairs, and what the system takes

// Clusters that the current device holds at once; 0 where it holds none.
template <typename Kernel>
int most_clusters(Kernel* kernel, int threads, int bytes, int cluster) {
  int count = 0;
  if (cluster == 1) {
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, threads, bytes) != cudaSuccess)
      return 0;
    return count * device_attribute(cudaDevAttrMultiProcessorCount);
  }
  if (allow_cluster(kernel, cluster) != cudaSuccess) return 0;
  const Together together(cluster, threads, bytes, cluster, nullptr);
  return cudaOccupancyMaxActiveClusters(&count, kernel, &together.config) == cudaSuccess ? count : 0;
}

// The same, asked once of each device.
template <typename Kernel>
int resident(Kernel* kernel, int threads, int bytes, int cluster) {
  static std::mutex mutex;
  static std::map<std::tuple<int, Kernel*, int, int>, int> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [found, is_new] = known.try_emplace({device, kernel, bytes, cluster}, 0);
  if (is_new) found->second = most_clusters(kernel, threads, bytes, cluster);
  return found->second;
}

template <typename T, int kThreads, int kVectors, bool kAligned>
cudaError_t launch(const Rows<T>& all, const Pipeline& pipe, cudaStream_t stream) {
  auto* kernel = &pipeline_kernel<T, kThreads, kVectors, kAligned>;
  const int bytes = pipe.ahead * (pipe.slice + (kAligned ? 0 : 1)) * 16;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const int64_t clusters = std::min<int64_t>(resident(kernel, kThreads, bytes, pipe.cluster), all.rows);
  if (clusters == 0) return cudaErrorInvalidConfiguration;
  return launch_together(kernel, clusters * pipe.cluster, kThreads, bytes, pipe.cluster, stream, all, pipe);
}

// Registers hold 32 elements of a thread, or 16: float32 has 4 to a vector, the half types 8.
template <typename T>
cudaError_t by_block(const Rows<T>& all, const Pipeline& pipe, cudaStream_t stream) {
  constexpr int kFull = 32 / kPerVector<T>;
  if (!all.aligned) return launch<T, kOddThreads, kFull, false>(all, pipe, stream);
  if (pipe.threads == 512) return launch<T, 512, kFull, true>(all, pipe, stream);
  if (pipe.slice <= 1024 * kFull / 2) return launch<T, 1024, kFull / 2, true>(all, pipe, stream);
  return launch<T, 1024, kFull, true>(all, pipe, stream);
}

}  // namespace

Pipeline pipeline_for(const Task& task, int cluster, int threads, int ahead) {
  if (!has_clusters() || !task.known()) return {};
  const int64_t vectors = task.vectors(), beside = task.aligned() ? 0 : 1;
  const int block = !task.aligned() ? kOddThreads : threads == 0 ? 512 : threads;
  if (task.aligned() && block != 512 && block != 1024) return {};
  const int64_t most = block * 32 * task.item_bytes() / 16;
  if (cluster == 0) {
    for (cluster = 1; cluster < kMaxCluster && ceil_div(vectors, cluster) > most;) cluster *= 2;
  }
  const int64_t slice = ceil_div(vectors, cluster);
  if (slice > most || cluster > kMaxCluster) return {};
  const int64_t room = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) /
                       resident_blocks(block, static_cast<int>(task.item_bytes()));
  const int64_t fitting = (room - kReservedBytes) / ((slice + beside) * 16);
  if (ahead == 0) ahead = static_cast<int>(std::clamp<int64_t>(fitting, 1, kMostAhead));
  return {cluster, block, static_cast<int>(slice), std::min(ahead, kMostAhead)};
}

cudaError_t pipeline_rows(const Task& task, const Pipeline& pipe) {
  if (pipe.cluster == 0) return cudaErrorInvalidConfiguration;
  return with_rows(task, [&](const auto& all) { return by_block(all, pipe, task.stream); });
}

}  // namespace kernels::softmax
