// Which design is the fastest for which rows: measured, see kernels/softmax/NOTES.md.
#pragma once

#include "backward.h"
#include "current_device.h"
#include "forward.h"

namespace kernels::softmax {

enum class Design { kVector, kCluster, kRing, kOnline, kRow };

// design     | rows                                          | because
// vector     | up to 64 KiB                                  | in registers, no exchange between blocks
// ring       | wider, on sm_90, while a team holds the row   | in shared memory, read once
// online     | the others                                    | read twice, any card
// row        | float64                                       | the plain kernel: nobody trains in float64
inline Design design_for(const Task& task) {
  if (!task.known()) return Design::kRow;
  if (task.vectors() <= kMostVectors) return Design::kVector;
  return ring_for(task, 0).team > 0 ? Design::kRing : Design::kOnline;
}

// Along a dim that is not the last: a tile in registers where one fits, else two reads.
constexpr int kStridedChunk = 64, kOnlineChunk = 128;  // bytes of a tile's columns to aim at
constexpr int kStridedBlock = 0;                       // as small a block as holds the tile

// Of the backward; the widths are those of one tensor, and both rows are held.
// design     | rows                                          | because
// vector     | up to 64 KiB                                  | in registers, no exchange between blocks
// cluster    | whole vectors, on sm_90, up to kMostTogether  | in registers, an exchange within a cluster
// ring       | wider, on sm_90, while a team holds the row   | in shared memory, read once
// online     | the others                                    | read twice, any card
// row        | float64                                       | the plain kernel: nobody trains in float64
constexpr int64_t kMostTogether = 16384, kMostHalfTogether = 8192;  // vectors in float32, in 16 bits
inline Design design_for(const GradTask& task) {
  const Task& rows = task.g_to_dx;
  const int64_t vectors = rows.vectors();
  if (!rows.known()) return Design::kRow;
  if (vectors <= kMostVectors) return Design::kVector;
  if (!has_clusters()) return Design::kOnline;
  const int64_t most = rows.dtype == Dtype::kFloat32 ? kMostTogether : kMostHalfTogether;
  if (rows.aligned() && vectors <= most) return Design::kCluster;
  return ring_for(task, 0).team > 0 ? Design::kRing : Design::kOnline;
}

}  // namespace kernels::softmax
