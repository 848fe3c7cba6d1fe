// How columns are cut into tiles for clusters of small blocks, and how many blocks share one.
#include "strided_staged.cuh"

#include <algorithm>

#include "current_device.h"
#include "shared_limit.h"

namespace kernels::softmax {
namespace {

using Blocks = StagedPlan<256, 5, 4>;
constexpr int kColumns = 128;               // bytes: what memory takes as one access
constexpr int64_t kSliceBytes = 32 * 1024;  // to aim at
constexpr int64_t kLeastBytes = 8 * 1024;   // less is not worth a block
constexpr int kOwnBytes = 128;              // of a block beside its dynamic shared memory

// Sizes of a tile: 2^shift vectors of each row.
struct Cut {
  int64_t length, tiles, wide;  // tiles: of all outer indices; wide: elements of a vector
  int shift;

  Cut(const Strided& task, int columns)
      : length(task.length),
        wide(16 / task.item_bytes()),
        shift(std::min(log2_from(task.inner / wide), log2_from(columns / 16))) {
    tiles = task.outer * ceil_div(task.inner, wide << shift);
  }
  int64_t slice_bytes(int cluster) const { return (ceil_div(length, cluster) << shift) * 16; }
  int64_t table_bytes(int cluster) const {
    return ColumnTables<float>::bytes(static_cast<int>(wide << shift), Blocks::kWarps, cluster);
  }
  bool fits(int cluster) const {
    const int64_t room = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kOwnBytes;
    return slice_bytes(cluster) + table_bytes(cluster) <= room && tiles * cluster <= 2147483647;
  }
  // The fewest blocks whose slices are small; where there are few tiles, of which more blocks have a part.
  int cluster() const {
    const int busy = device_attribute(cudaDevAttrMultiProcessorCount), most = most_clustered();
    int blocks = 1;
    while (blocks < most && slice_bytes(blocks) > (tiles * blocks < busy ? kLeastBytes : kSliceBytes))
      blocks *= 2;
    return blocks;
  }
};

// Bytes of columns: the widest access if slices stay small, else half of that, or what fits.
int columns_for(const Strided& task, int cluster) {
  const int blocks = cluster > 0 ? cluster : most_clustered();
  int columns = kColumns;
  if (Cut(task, columns).slice_bytes(blocks) > kSliceBytes) columns /= 2;
  while (columns > 16 && !Cut(task, columns).fits(blocks)) columns /= 2;
  return columns;
}

}  // namespace

StreamTile strided_staged_tile_for(const Strided& task, int cluster, int columns) {
  if (!has_clusters() || task.cell_bytes() != 16) return {};
  const Cut cut(task, columns > 0 ? columns : columns_for(task, cluster));
  if (cluster == 0) cluster = cut.cluster();
  if (cluster < 1 || cluster > kMaxCluster || !cut.fits(cluster)) return {};
  return {Blocks::kThreads,
          cluster,
          cut.shift,
          static_cast<int>(task.length),
          static_cast<int>(cut.wide << cut.shift),
          static_cast<unsigned>(cut.tiles / task.outer),
          false};
}

cudaError_t strided_staged(const Strided& task, const StreamTile& tile) {
  if (tile.threads == 0) return cudaErrorInvalidConfiguration;
  return with_up_to_float(task.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    auto* kernel = &strided_staged_kernel<T, Blocks>;
    const Tiles<T> all = tiles_of<T>(task, tile, nullptr);
    const int slice = all.rows << all.shift;
    const int bytes = slice * 16 + ColumnTables<T>::bytes(all.columns, Blocks::kWarps, tile.share);
    return with_shared_bytes(kernel, bytes, [&] {
      return launch_together(kernel, static_cast<int64_t>(all.count) * tile.share, Blocks::kThreads, bytes,
                             tile.share, task.stream, all, slice);
    });
  });
}

}  // namespace kernels::softmax
