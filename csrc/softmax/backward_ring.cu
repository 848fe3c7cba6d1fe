// How many blocks share a row in the rings of the backward, and how deep they are.
#include <algorithm>

#include "backward_ring.cuh"
#include "current_device.h"

namespace kernels::softmax {
namespace {

constexpr int kReducers = 256, kWriters = 256;
// Vectors of each tensor that a stage should hold at most: then a block has six or seven of them.
constexpr int64_t kMostPiece = 1024;

int piece_room(const Task& rows, const Ring& ring) {
  return rows.aligned() ? GradPiece<float, true>::room(ring.piece())
                        : GradPiece<float, false>::room(ring.piece());
}

}  // namespace

Ring ring_for(const GradTask& task, int team) {
  if (!has_clusters()) return {};
  const Task& rows = task.g_to_dx;
  const int blocks = device_attribute(cudaDevAttrMultiProcessorCount);
  const int bytes =
      device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - int{sizeof(Control<kReducers / kWarp>)};
  const auto slice_of = [&](int team) {
    return ceil_div(vectors_on_lines(rows), team * kLineVectors) * kLineVectors;
  };
  if (team == 0) {
    for (team = 1; team < std::min(blocks, kMaxTeam); ++team) {
      if (blocks % team == 0 && slice_of(team) <= kMostPiece) break;
    }
  }
  if (team > std::min(blocks, kMaxTeam)) return {};
  Ring ring{team, 0, static_cast<int>(slice_of(team)), 0, 0};
  ring.pieces = static_cast<int>(ceil_div(ring.slice, kMostPiece));
  ring.stages = std::min(bytes / (2 * 16 * piece_room(rows, ring)), kMaxStages);
  ring.teams = static_cast<int>(std::min<int64_t>(blocks / team, rows.rows));
  return ring.stages > ring.pieces ? ring : Ring{};
}

cudaError_t ring_backward(const GradTask& task, const Ring& ring, void* scratch) {
  if (ring.team == 0) return cudaErrorInvalidConfiguration;
  return with_grad_rows(task, [&](const auto& all) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(all.y)>>;
    const auto rows = all.g_to_dx.rows;
    const auto stream = task.g_to_dx.stream;
    return all.g_to_dx.aligned
               ? launch_ring<GradSlices<T, true>, kReducers, kWriters>(all, rows, ring, scratch, stream)
               : launch_ring<GradSlices<T, false>, kReducers, kWriters>(all, rows, ring, scratch, stream);
  });
}

}  // namespace kernels::softmax
