// How columns are cut into tiles for clusters of small blocks, and how many blocks share one.
#include "strided_cluster.cuh"

#include <algorithm>

#include "current_device.h"

namespace kernels::softmax {
namespace {

// What was fastest on an H200 (kernels/softmax/NOTES.md, down the columns, step 8):
// dtype     | threads of 16 vectors | bytes of columns
// float32   | 256                   | 256 to 1024 rows, 128 beyond
// half      | 128                   | 64
constexpr int kVectors = 16;
template <typename T>
using Blocks =
    std::conditional_t<sizeof(T) == 4, ClusterPlan<256, 2, kVectors>, ClusterPlan<128, 4, kVectors>>;

int threads_of(const Strided& task) {
  return task.item_bytes() == 4 ? Blocks<float>::kThreads : Blocks<__half>::kThreads;
}
int measured_columns(const Strided& task) {
  return task.item_bytes() == 2 ? 64 : task.length <= 1024 ? 256 : 128;
}

constexpr int64_t kLeastVectors = 512;  // less is not worth a block

// Sizes of a tile: 2^shift vectors of each row.
struct Cut {
  int64_t length, tiles, wide;  // tiles: of all outer indices; wide: elements of a vector
  int64_t room;                 // vectors of a block
  int shift;

  Cut(const Strided& task, int columns)
      : length(task.length),
        wide(16 / task.item_bytes()),
        room(threads_of(task) * kVectors),
        shift(std::min(log2_from(task.inner / wide), log2_from(columns / 16))) {
    tiles = task.outer * ceil_div(task.inner, wide << shift);
  }
  int64_t slice(int cluster) const { return ceil_div(length, cluster) << shift; }
  bool fits(int cluster) const { return slice(cluster) <= room && tiles * cluster <= 2147483647; }

  // The fewest blocks that hold a tile; where there are few tiles, of which more blocks have a part.
  int cluster() const {
    const int busy = device_attribute(cudaDevAttrMultiProcessorCount), most = most_clustered();
    int blocks = 1;
    while (blocks < most && slice(blocks) > (tiles * blocks < busy ? kLeastVectors : room)) blocks *= 2;
    return blocks;
  }
};

// Bytes of columns: what was measured, or what fits, or what fills a block.
int columns_for(const Strided& task, int cluster) {
  const int most = cluster > 0 ? cluster : most_clustered();
  int columns = measured_columns(task);
  while (columns > 16 && !Cut(task, columns).fits(most)) columns /= 2;
  while (columns < kMostColumnBytes && Cut(task, columns * 2).fits(1)) columns *= 2;
  return columns;
}

}  // namespace

StreamTile strided_cluster_tile_for(const Strided& task, int cluster, int columns) {
  if (!has_clusters() || task.cell_bytes() != 16) return {};
  const Cut cut(task, columns > 0 ? columns : columns_for(task, cluster));
  if (cluster == 0) cluster = cut.cluster();
  if (cluster < 1 || cluster > kMaxCluster || !cut.fits(cluster)) return {};
  return {threads_of(task),
          cluster,
          cut.shift,
          static_cast<int>(task.length),
          static_cast<int>(cut.wide << cut.shift),
          static_cast<unsigned>(cut.tiles / task.outer),
          false};
}

cudaError_t strided_cluster(const Strided& task, const StreamTile& tile) {
  if (tile.threads == 0) return cudaErrorInvalidConfiguration;
  return with_up_to_float(task.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using P = Blocks<T>;
    constexpr int kMostColumns = kMostColumnBytes / static_cast<int>(sizeof(T));
    static_assert(ColumnTables<T>::bytes(kMostColumns, P::kWarps, kMaxCluster) < 48 * 1024,
                  "No more is asked.");
    const Tiles<T> all = tiles_of<T>(task, tile, nullptr);
    return launch_together(&strided_cluster_kernel<T, P>, static_cast<int64_t>(all.count) * tile.share,
                           P::kThreads, ColumnTables<T>::bytes(all.columns, P::kWarps, tile.share),
                           tile.share, task.stream, all);
  });
}

}  // namespace kernels::softmax
