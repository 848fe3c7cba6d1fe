// Which design is the fastest for which rows: measured, see kernels/softmax/NOTES.md.
#pragma once

#include "backward.h"
#include "current_device.h"
#include "forward.h"
#include "strided.h"

namespace kernels::softmax {

enum class Design { kVector, kCluster, kStaged, kRing, kOnline, kRow };

// Widest row, in vectors, that one block should have in registers: where its threads would hold many unpacked
// elements, or look at the ends of every vector, shared memory is better.
inline int64_t most_in_block(const Task& task) {
  if (!has_clusters()) return kMostVectors;
  if (task.dtype != Dtype::kFloat32) return 2048;
  return task.aligned() ? 4096 : 1024;
}

// Whether each row is best in the registers of one block that is alone on its multiprocessor.
inline bool fills_a_block(const Task& task) {
  return task.dtype == Dtype::kFloat32 && task.aligned() && task.vectors() > 6144 && task.vectors() <= 8192 &&
         task.rows >= device_attribute(cudaDevAttrMultiProcessorCount);
}

// Widest row, in vectors, for clusters of blocks that share a multiprocessor: 1 MiB, and one line.
constexpr int64_t kMostStagedVectors = 65536 + 8;

// design     | rows                                          | because
// vector     | float32 to 64 KiB (not aligned: 16), half 32  | in registers, no exchange between blocks
// cluster    | float32 of 96 to 128 KiB, aligned, on sm_90   | in registers of one block of 1024 threads
// staged     | wider, up to 1 MiB, on sm_90                  | in shared memory of several blocks to an SM
// ring       | wider, on sm_90, while a team holds the row   | in shared memory, read once
// online     | the others                                    | read twice, any card
// row        | float64                                       | the plain kernel: nobody trains in float64
inline Design design_for(const Task& task) {
  if (!task.known()) return Design::kRow;
  if (task.vectors() <= most_in_block(task)) return Design::kVector;
  if (!has_clusters()) return Design::kOnline;
  if (fills_a_block(task)) return Design::kCluster;
  if (task.vectors() <= kMostStagedVectors && staged_for(task, 0).cluster > 0) return Design::kStaged;
  return ring_for(task, 0).team > 0 ? Design::kRing : Design::kOnline;
}

// Along a dim that is not the last.
constexpr int kStridedChunk = 64, kOnlineChunk = 128;  // bytes of a tile's columns to aim at
constexpr int kStridedBlock = 0;                       // as small a block as holds the tile

enum class StridedDesign { kTiles, kWords, kStream };

// As wide as one block holds: with another beside it on the SM in half types, alone in float32. Where that
// would be 32 bytes, clusters have 64, unless a row has no more than that. Tiles come ahead of need for the
// largest blocks only: in half types for all of those, in float32 where they share a tile.
inline StreamTile tuned_tile_for(const Strided& task) {
  const bool half = task.item_bytes() == 2;
  const bool narrow = task.inner * task.item_bytes() <= 64;
  const int chunk = task.length <= (half ? 512 : 1024) ? 128 : narrow && task.length > 2048 ? 32 : 64;
  StreamTile tile = stream_tile_for(task, chunk, true);
  tile.ahead = tile.ahead && (half || tile.share > 1);
  return tile;
}

// design | columns                                              | because
// stream | whose rows are vectors, with tiles for every SM      | fewest instructions, widest accesses
// words  | narrow ones of other widths that fill blocks         | the same, word by word
// tiles  | the others; beyond a cluster's registers two reads   | any width; clusters of up to 16
inline StridedDesign strided_design_for(const Strided& task) {
  const int64_t busy = device_attribute(cudaDevAttrMultiProcessorCount);
  const StreamTile tile = tuned_tile_for(task);
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
