// How columns would be launched in clusters of small blocks. Each line of stdin is a card and a task, each
// line of stdout what came of it.
#include "faked_launches.cuh"
#include "softmax/strided_cluster.cuh"

using namespace kernels;
using namespace kernels::softmax;

// major processors shared dtype outer length inner cluster columns.
int main() {
  long outer, length, inner;
  int dtype, cluster, columns;
  while (std::scanf("%d %d %d %d %ld %ld %ld %d %d", &card.major, &card.processors, &card.shared_bytes,
                    &dtype, &outer, &length, &inner, &cluster, &columns) == 9) {
    const Strided task{
        nullptr, nullptr, outer, length, inner, length * inner, inner, static_cast<Dtype>(dtype), nullptr};
    limited = nullptr;
    beyond_portable = 0;
    const StreamTile tile = strided_cluster_tile_for(task, cluster, columns);
    std::printf("fits=%d share=%d columns=%d tiles=%u own=%zu", tile.threads > 0, tile.share, tile.columns,
                tile.tiles, sizeof(Barrier));
    const int error = strided_cluster(task, tile);
    std::printf(" error=%d\n", error);
  }
}
