// How wide rows would be launched. Each line of stdin is a card and a task, each line of stdout what came of
// it.
// With an argument, how many of that many launches from each of two threads are refused.
#include <cstdlib>

#include "faked_launches.cuh"
#include "softmax/ring_forward.cuh"
#include "softmax/staged.cuh"
#include "softmax/tuned.h"

using namespace kernels;
using namespace kernels::softmax;

static int refused(long cols, int times) {
  const Task task{nullptr, nullptr, 64, cols, cols, Dtype::kFloat32, nullptr};
  int count = 0;
  for (int i = 0; i < times; ++i) count += staged_rows(task, staged_for(task, 1)) != cudaSuccess;
  return count;
}

static int of_two_threads(int times) {
  card = {9, 132, 232448}, quiet = true;
  int wide = 0;
  std::thread other([&] { wide = refused(50000, times); });
  const int narrow = refused(10000, times);
  other.join();
  return wide + narrow;
}

// major processors shared dtype rows cols stride x y cluster; cluster -1: as `tuned` does.
int main(int count, char** given) {
  if (count > 1) return std::printf("%d\n", of_two_threads(std::atoi(given[1]))) < 0;
  long rows, cols, stride, x, y;
  int dtype, cluster;
  while (std::scanf("%d %d %d %d %ld %ld %ld %ld %ld %d", &card.major, &card.processors, &card.shared_bytes,
                    &dtype, &rows, &cols, &stride, &x, &y, &cluster) == 10) {
    const Task task{reinterpret_cast<void*>(x),
                    reinterpret_cast<void*>(y),
                    rows,
                    cols,
                    stride,
                    static_cast<Dtype>(dtype),
                    nullptr};
    limited = nullptr;
    beyond_portable = 0;
    const Design design = cluster < 0 ? design_for(task) : Design::kStaged;
    const char* const names[] = {"vector", "cluster", "staged", "ring", "online", "row"};
    std::printf("design=%s", names[static_cast<int>(design)]);
    int error = 0;
    if (design == Design::kStaged) {
      const Staged staged = staged_for(task, cluster < 0 ? 0 : cluster);
      std::printf(" slice=%d own=%zu", staged.slice, sizeof(Barrier) + sizeof(RowPairs<8>));
      error = staged_rows(task, staged);
    } else if (design == Design::kRing) {
      const Ring ring = ring_for(task, 0);
      std::printf(" slice=%d own=%zu team=%d", ring.slice, sizeof(Control<24>), ring.team);
      error = ring_rows(task, ring, nullptr);
    }
    std::printf(" error=%d\n", error);
  }
}
