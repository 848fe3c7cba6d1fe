// How many blocks share a row, and how deep their rings are.
#include <algorithm>

#include "current_device.h"
#include "forward.h"
#include "ring_forward.cuh"

namespace kernels::softmax {
namespace {

template <typename T>
constexpr int kThreads = sizeof(T) == 4 ? 768 : 512;
constexpr int kMostLag = 3;
// A slice this small is reduced and written faster than the team's exchange takes, at any lag.
constexpr int64_t kLeastSlice = 1024;  // vectors: 16 KiB

// Slices that a block of a team should hold, measured on an H200: fewer and larger ones where the
// instructions for an element, not the exchange, are what costs; but not three alone, between many blocks.
int64_t depth_of(const Task& task) {
  if (task.dtype == Dtype::kFloat32) return 7;
  return task.vectors() * 16 <= (1 << 20) ? 3 : 4;
}

}  // namespace

Ring ring_of(const RingLoad& load, int team) {
  if (!has_clusters()) return {};
  const int blocks = device_attribute(cudaDevAttrMultiProcessorCount);
  const int64_t bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - load.control_bytes;
  const int64_t room = bytes / 16;
  const auto slice_of = [&](int64_t blocks) {
    return ceil_div(load.vectors, blocks * load.step) * load.step + load.beside;
  };
  if (team == 0) {
    // Whole rows while three of them fit a block, then enough blocks for deep rings; more where there are
    // fewer rows than blocks.
    const int64_t deep = 3 * slice_of(1) <= room ? 3 : load.deep;
    for (team = 1; team < std::min(blocks, kMaxTeam); ++team) {
      const bool enough = deep * slice_of(team) <= room;
      const bool split = load.rows * team < blocks && slice_of(team) > kLeastSlice;
      if (blocks % team == 0 && enough && !split) break;
    }
  }
  Ring ring{team, 0, static_cast<int>(slice_of(team) - load.beside), 0, 0};
  ring.stages = static_cast<int>(std::min<int64_t>(room / slice_of(team), kMaxStages));
  ring.teams = static_cast<int>(std::min<int64_t>(blocks / team, load.rows));
  ring.lag = team == 1 ? 1 : std::clamp(ring.stages - 2, 1, kMostLag);
  return ring.stages > ring.lag && team <= kMaxTeam ? ring : Ring{};
}

Ring ring_for(const Task& task, int team) {
  constexpr int kControlBytes = sizeof(Control<kThreads<float> / kWarp>);
  return ring_of(
      {task.rows, task.line_vectors(), task.shifted() ? kLine : 0, depth_of(task), kControlBytes, kLine},
      team);
}

cudaError_t ring_rows(const Task& task, const Ring& ring, void* scratch) {
  if (ring.team == 0) return cudaErrorInvalidConfiguration;
  return with_rows(task, [&](const auto& all) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(all.x)>>;
    return task.shifted()
               ? launch_ring<ForwardSlices<T, true>, kThreads<T>>(all, all.rows, ring, scratch, task.stream)
               : launch_ring<ForwardSlices<T, false>, kThreads<T>>(all, all.rows, ring, scratch, task.stream);
  });
}

}  // namespace kernels::softmax
