// How many blocks share a row, and how deep their rings are.
#include "ring.cuh"

#include <algorithm>

namespace kernels::softmax {
namespace {

template <typename T>
constexpr int kThreads = sizeof(T) == 4 ? 512 : 768;  // 16-bit elements are twice as many
constexpr int kControlBytes = sizeof(Control<768 / kWarp>);
constexpr int kMostLag = 3;
// A slice this small is reduced and written faster than the team's exchange takes, at any lag.
constexpr int64_t kLeastSlice = 1024;  // vectors: 16 KiB
constexpr int kDepth =
    7;  // slices of a team's block: one or two are being written, lag ones reduced, the rest on the way

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

template <typename T>
cudaError_t launch(const Rows<T>& all, const Ring& ring, Partial* scratch, cudaStream_t stream) {
  return launch_ring<kThreads<T>>(all, ring, scratch, stream);
}

}  // namespace

Ring ring_for(const Task& task, int team) {
  if (device_attribute(cudaDevAttrComputeCapabilityMajor) < 9) return {};
  const int blocks = device_attribute(cudaDevAttrMultiProcessorCount);
  const int64_t room = (device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kControlBytes) / 16;
  const int64_t vectors = task.vectors(), beside = task.aligned() ? 0 : 1;
  const auto slice_of = [&](int64_t blocks) { return ceil_div(vectors, blocks) + beside; };
  if (team == 0) {
    // Whole rows while three of them fit a block, then enough blocks for deep rings; more where there are
    // fewer rows than blocks.
    const int deep = 3 * slice_of(1) <= room ? 1 : kDepth;
    for (team = 1; team < std::min(blocks, kMaxTeam); ++team) {
      const bool enough = deep * slice_of(team) <= room;
      const bool split = task.rows * team < blocks && slice_of(team) > kLeastSlice;
      if (blocks % team == 0 && enough && !split) break;
    }
  }
  Ring ring{team, 0, static_cast<int>(slice_of(team) - beside), 0, 0};
  ring.stages = static_cast<int>(std::min<int64_t>(room / slice_of(team), kMaxStages));
  ring.teams = static_cast<int>(std::min<int64_t>(blocks / team, task.rows));
  ring.lag = team == 1 ? 1 : std::min(kMostLag, ring.stages - 1);
  return ring.lag > 0 && team <= kMaxTeam ? ring : Ring{};
}

cudaError_t ring_rows(const Task& task, const Ring& ring, void* scratch) {
  if (ring.team == 0) return cudaErrorInvalidConfiguration;
  return with_rows(
      task, [&](const auto& all) { return launch(all, ring, static_cast<Partial*>(scratch), task.stream); });
}

}  // namespace kernels::softmax
