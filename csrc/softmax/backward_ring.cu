// How many blocks share a row in the rings of the backward, and how deep they are.
#include <algorithm>

#include "backward_ring.cuh"
#include "current_device.h"

namespace kernels::softmax {
namespace {

constexpr int kThreads = 256, kWriters = 256;
constexpr int kMostLag = 3;  // where a slice is one piece

// Vectors of each tensor that a stage should hold at most, measured on an H200: seven stages to a block, or
// five where it is the instructions for an element that cost.
int64_t most_piece(const Task& rows) {
  return rows.dtype == Dtype::kFloat32 || !rows.aligned() ? 1024 : 1408;
}

// Stages that are reduced before the first is written, where the same warps do both.
int lag_of(const Ring& ring) {
  return ring.pieces > 1 ? ring.stages - 2 : std::clamp((ring.stages - 1) / 2, 1, kMostLag);
}

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
      device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - int{sizeof(Control<kThreads / kWarp>)};
  const auto slice_of = [&](int team) {
    return ceil_div(vectors_on_lines(rows), team * kLineVectors) * kLineVectors;
  };
  if (team == 0) {
    for (team = 1; team < std::min(blocks, kMaxTeam); ++team) {
      if (blocks % team == 0 && slice_of(team) <= most_piece(rows)) break;
    }
  }
  if (team > std::min(blocks, kMaxTeam)) return {};
  Ring ring{team, 0, static_cast<int>(slice_of(team)), 0, 0};
  ring.pieces = static_cast<int>(ceil_div(ring.slice, most_piece(rows)));
  ring.stages = std::min(bytes / (2 * 16 * piece_room(rows, ring)), kMaxStages);
  ring.teams = static_cast<int>(std::min<int64_t>(blocks / team, rows.rows));
  ring.lag = lag_of(ring);
  return ring.stages > ring.pieces ? ring : Ring{};
}

cudaError_t ring_backward(const GradTask& task, const Ring& ring, void* scratch) {
  if (ring.team == 0) return cudaErrorInvalidConfiguration;
  return with_grad_rows(task, [&](const auto& all) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(all.y)>>;
    const auto rows = all.g_to_dx.rows;
    const auto stream = task.g_to_dx.stream;
    // Vectors with masks and shifts take so many instructions that others had better write meanwhile.
    return all.g_to_dx.aligned
               ? launch_ring<GradSlices<T, true>, kThreads>(all, rows, ring, scratch, stream)
               : launch_ring<GradSlices<T, false>, kThreads, kWriters>(all, rows, ring, scratch, stream);
  });
}

}  // namespace kernels::softmax
