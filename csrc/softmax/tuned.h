// Which design is the fastest for which rows: measured, see kernels/softmax/NOTES.md.
#pragma once

#include "backward.h"
#include "current_device.h"
#include "forward.h"
#include "strided.h"

namespace kernels::softmax {

enum class Design { kVector, kCluster, kStaged, kRing, kOnline, kRow };

// Blocks of 1024 threads that share a row in registers where that is the fastest; else 0.
inline int blocks_for(const Task& task) {
  if (task.dtype != Dtype::kFloat32 || !task.aligned() || !has_clusters()) return 0;
  return task.vectors() <= 8192 ? 1 : 0;
}

// Widest row, in vectors, of which clusters of blocks that share a multiprocessor are the fastest: 1 MiB.
constexpr int64_t kMostStagedVectors = 65536;

// design     | rows                                          | because
// vector     | up to 64 KiB                                  | in registers, no exchange between blocks
// cluster    | float32 up to 128 KiB, aligned, on sm_90      | in registers of one block
// staged     | up to 1 MiB, on sm_90                         | in shared memory of several blocks to an SM
// ring       | wider, on sm_90, while a team holds the row   | in shared memory, read once
// online     | the others                                    | read twice, any card
// row        | float64                                       | the plain kernel: nobody trains in float64
inline Design design_for(const Task& task) {
  if (!task.known()) return Design::kRow;
  const bool half = task.dtype != Dtype::kFloat32;  // a vector more than 64 KiB is too much for its registers
  if (task.vectors() <= kMostVectors - (half && has_clusters() ? 1 : 0)) return Design::kVector;
  if (blocks_for(task) > 0) return Design::kCluster;
  if (task.vectors() <= kMostStagedVectors && staged_for(task, 0).cluster > 0) return Design::kStaged;
  return ring_for(task, 0).team > 0 ? Design::kRing : Design::kOnline;
}

// Along a dim that is not the last.
constexpr int kStridedChunk = 64, kOnlineChunk = 128;  // bytes of a tile's columns to aim at
constexpr int kStridedBlock = 0;                       // as small a block as holds the tile

enum class StridedDesign { kTiles, kWords, kStream };

// Tiles of 128 bytes of columns where a block holds that; longer columns by 64, and by clusters.
inline StreamChoice stream_choice_for(const Strided& task) {
  const bool half = task.item_bytes() == 2;
  if (task.length > 1024) return {64, 512, true};
  if (task.length > 512) return half ? StreamChoice{64, 256, true} : StreamChoice{128, 512, false};
  return {128, 512, false};
}

// design | columns                                                       | because
// stream | whose rows are vectors, when there are tiles for every SM     | fewest instructions
// words  | narrow ones of other widths, when they fill blocks            | the same, word by word
// tiles  | the others; beyond a cluster's registers two reads            | any width; clusters of up to 16
inline StridedDesign strided_design_for(const Strided& task) {
  const int64_t busy = device_attribute(cudaDevAttrMultiProcessorCount);
  const StreamTile tile = stream_tile_for(task, stream_choice_for(task));
  if (tile.threads > 0 && task.outer * tile.tiles * tile.share >= busy) return StridedDesign::kStream;
  constexpr int64_t kFilling = 8192;  // elements
  const bool fills = task.length * task.inner >= kFilling && task.outer >= busy;
  return fills && task.cell_bytes() < 16 && fits_words(task) ? StridedDesign::kWords : StridedDesign::kTiles;
}

// Of the backward; the widths are those of one tensor, and both rows are held.
// design     | rows                                          | because
// vector     | up to 64 KiB; 16 bits, not aligned, 40 KiB    | in registers, no exchange between blocks
// cluster    | whole vectors, on sm_90, up to kMostTogether  | in registers, an exchange within a cluster
// ring       | wider, on sm_90, while a team holds the row   | in shared memory, read once
// online     | the others                                    | read twice, any card
// row        | float64                                       | the plain kernel: nobody trains in float64
constexpr int64_t kMostTogether = 16384, kMostHalfTogether = 8192;  // vectors in float32, in 16 bits
constexpr int64_t kMostHalfOdd = 2560;  // a block of 1024 with masks and shifts is alone on its SM
inline Design design_for(const GradTask& task) {
  const Task& rows = task.g_to_dx;
  const int64_t vectors = rows.vectors();
  if (!rows.known()) return Design::kRow;
  const bool half = rows.dtype != Dtype::kFloat32, clusters = has_clusters();
  if (vectors <= (half && clusters && !rows.aligned() ? kMostHalfOdd : kMostVectors)) return Design::kVector;
  if (!clusters) return Design::kOnline;
  const int64_t most = half ? kMostHalfTogether : kMostTogether;
  if (rows.aligned() && vectors <= most) return Design::kCluster;
  return ring_for(task, 0).team > 0 ? Design::kRing : Design::kOnline;
}

}  // namespace kernels::softmax
