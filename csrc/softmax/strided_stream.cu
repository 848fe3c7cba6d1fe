// How columns are cut into tiles for blocks that stay, and how many of those there are.
#include "strided_stream.cuh"

#include <algorithm>

#include "current_device.h"

namespace kernels::softmax {
namespace {

constexpr int kReservedBytes = 1024;  // of shared memory, by the system for each block
constexpr int kEach = 16;             // vectors of a thread
constexpr int kFew = 8;               // of the smallest block, if they hold the tile
constexpr int kLeastAhead = 256;      // threads of a block that has vectors on their way
constexpr bool kKeep = true;          // powers of bfloat16
constexpr int kAheadOf = 6;           // batches on their way, of a quarter of that

// Rows of less than a vector, which a vector holds a whole number of, as rows of one vector.
bool narrow(const Strided& task) {
  const int64_t wide = 16 / task.item_bytes();
  const auto bits = reinterpret_cast<uintptr_t>(task.x) | reinterpret_cast<uintptr_t>(task.y) |
                    static_cast<uintptr_t>(task.stride * task.item_bytes());
  return task.dense() && task.inner < wide && wide % task.inner == 0 &&
         task.length * task.inner % wide == 0 && bits % 16 == 0;
}

int log2_from(int64_t least) {
  int shift = 0;
  while (int64_t{1} << shift < least) ++shift;
  return shift;
}

// Whether a block of the current device may have so much shared memory.
bool holds_ahead(int threads) {
  const int bytes = kAheadOf * kEach / 4 * threads * 16 + 16384;
  return bytes <= device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

template <typename T>
Tiles<T> tiles_of(const Strided& task, const StreamTile& tile, unsigned* taken) {
  const bool packed = narrow(task);
  const int64_t wide = kPerVector<T>;
  return {static_cast<const T*>(task.x),
          static_cast<T*>(task.y),
          task.stride,
          packed ? wide : task.pitch,
          task.length * task.inner,
          packed ? wide : task.inner,
          static_cast<unsigned>(task.outer * tile.tiles),
          tile.tiles,
          static_cast<int>(ceil_div(tile.rows, tile.share)),
          tile.shift,
          tile.columns,
          tile.rows,
          taken};
}

template <typename T, typename P>
cudaError_t launch(const Strided& task, const StreamTile& tile, unsigned* taken) {
  auto* kernel = &stream_kernel<T, P>;
  constexpr int kBytes = P::template shared_bytes<T>();
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const Tiles<T> all = tiles_of<T>(task, tile, taken);
  int64_t teams = all.count;
  if constexpr (P::kAhead > 0) {
    error = cudaMemsetAsync(taken, 0, sizeof(unsigned), task.stream);
    if (error != cudaSuccess) return error;
    const int room = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    const int resident = std::min(P::kResident, room / (kBytes + kReservedBytes));
    teams = std::clamp<int64_t>(device_attribute(cudaDevAttrMultiProcessorCount) * resident / tile.share, 1,
                                teams);
  }
  return launch_together(kernel, teams * tile.share, P::kThreads, kBytes, tile.share, task.stream, all);
}

template <typename T, int kThreads, bool kShared>
cudaError_t launch_block(const Strided& task, const StreamTile& tile, unsigned* taken) {
  if (tile.ahead)
    return launch<T, Plan<kThreads, kEach, kEach / 4, kAheadOf, kShared, kKeep>>(task, tile, taken);
  return launch<T, Plan<kThreads, kEach, kEach, 0, kShared, kKeep>>(task, tile, taken);
}

template <typename T>
cudaError_t by_block(const Strided& task, const StreamTile& tile, unsigned* taken) {
  const bool shared = tile.share > 1;
  switch (tile.threads) {
    case 32:
      if (tile.rows << tile.shift <= 32 * kFew)
        return launch<T, Plan<32, kFew, kFew, 0, false, kKeep>>(task, tile, taken);
      return launch<T, Plan<32, kEach, kEach, 0, false, kKeep>>(task, tile, taken);
    case 64:
      return launch<T, Plan<64, kEach, kEach, 0, false, kKeep>>(task, tile, taken);
    case 128:
      return launch<T, Plan<128, kEach, kEach, 0, false, kKeep>>(task, tile, taken);
    case 256:
      return shared ? launch_block<T, 256, true>(task, tile, taken)
                    : launch_block<T, 256, false>(task, tile, taken);
    default:
      return shared ? launch_block<T, 512, true>(task, tile, taken)
                    : launch_block<T, 512, false>(task, tile, taken);
  }
}

}  // namespace

StreamTile stream_tile_for(const Strided& task, const StreamChoice& choice) {
  const bool packed = narrow(task);
  if (!packed && task.cell_bytes() != 16) return {};
  const int64_t wide = 16 / task.item_bytes();
  const int64_t rows = packed ? task.length * task.inner / wide : task.length;
  const int64_t lanes = packed ? 1 : task.inner / wide;
  const int shift = std::min(log2_from(lanes), log2_from(choice.chunk / 16));
  const int64_t vectors = rows << shift, tiles = ceil_div(lanes, int64_t{1} << shift);
  int share = 1, threads = 32;
  while (ceil_div(vectors, share) > choice.block * kEach && share <= kMostShare) share *= 2;
  while (threads * kEach < vectors && threads < choice.block) threads *= 2;
  const bool fits = share == 1 || (share <= kMostShare && has_clusters());
  if (!fits || task.outer * tiles * share > 2147483647) return {};
  const int columns = static_cast<int>(packed ? task.inner : wide << shift);
  return {threads,
          share,
          shift,
          static_cast<int>(rows),
          columns,
          static_cast<unsigned>(tiles),
          choice.ahead && threads >= kLeastAhead && holds_ahead(threads)};
}

cudaError_t strided_stream(const Strided& task, const StreamTile& tile, unsigned* taken) {
  if (tile.threads == 0) return cudaErrorInvalidConfiguration;
  return with_up_to_float(
      task.dtype, [&](auto type) { return by_block<typename decltype(type)::type>(task, tile, taken); });
}

}  // namespace kernels::softmax
