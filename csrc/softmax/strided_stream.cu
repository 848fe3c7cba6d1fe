// How columns are cut into tiles for blocks that stay, and how many of those there are.
#include "strided_stream.cuh"

#include <algorithm>

#include "current_device.h"

namespace kernels::softmax {
namespace {

constexpr int kEach = 16;          // vectors of a thread
constexpr int kMostThreads = 512;  // of a block
constexpr int kSmallest = 256;     // vectors of a tile for a warp with half as many, where powers are kept
constexpr int kAheadOf = 6;        // batches on their way, of a quarter of that

// Whether a block of the current device may have so much shared memory.
bool holds_ahead() {
  constexpr int kBytes = kAheadOf * kEach / 4 * kMostThreads * 16 + 16384;
  return kBytes <= device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
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

template <int kThreads>
using Plain = Plan<kThreads, kEach, kEach, 0, false, false>;

template <typename T, bool kShared>
cudaError_t launch_largest(const Strided& task, const StreamTile& tile, unsigned* taken) {
  if (tile.ahead)
    return launch<T, Plan<kMostThreads, kEach, kEach / 4, kAheadOf, kShared, false>>(task, tile, taken);
  return launch<T, Plan<kMostThreads, kEach, kEach, 0, kShared, false>>(task, tile, taken);
}

template <typename T>
cudaError_t by_block(const Strided& task, const StreamTile& tile, unsigned* taken) {
  if (tile.share > 1) return launch_largest<T, true>(task, tile, taken);
  if (tile.rows << tile.shift <= kSmallest)
    return launch<T, Plan<32, 8, 8, 0, false, true>>(task, tile, taken);
  switch (tile.threads) {
    case 32:
      return launch<T, Plain<32>>(task, tile, taken);
    case 64:
      return launch<T, Plain<64>>(task, tile, taken);
    case 128:
      return launch<T, Plain<128>>(task, tile, taken);
    case 256:
      return launch<T, Plain<256>>(task, tile, taken);
    default:
      return launch_largest<T, false>(task, tile, taken);
  }
}

}  // namespace

StreamTile stream_tile_for(const Strided& task, int chunk, bool ahead) {
  const bool packed = narrow(task);
  if (!packed && task.cell_bytes() != 16) return {};
  const int64_t wide = 16 / task.item_bytes();
  const int64_t rows = packed ? task.length * task.inner / wide : task.length;
  const int64_t lanes = packed ? 1 : task.inner / wide;
  const int shift = std::min(log2_from(lanes), log2_from(chunk / 16));
  const int64_t vectors = rows << shift, tiles = ceil_div(lanes, int64_t{1} << shift);
  int share = 1, threads = 32;
  while (ceil_div(vectors, share) > kMostThreads * kEach && share <= kMostShare) share *= 2;
  while (threads * kEach < vectors && threads < kMostThreads) threads *= 2;
  const bool fits = share == 1 || (share <= kMostShare && has_clusters());
  if (!fits || task.outer * tiles * share > 2147483647) return {};
  const int columns = static_cast<int>(packed ? task.inner : wide << shift);
  ahead = ahead && threads == kMostThreads && holds_ahead();
  return {threads, share, shift, static_cast<int>(rows), columns, static_cast<unsigned>(tiles), ahead};
}

cudaError_t strided_stream(const Strided& task, const StreamTile& tile, unsigned* taken) {
  if (tile.threads == 0) return cudaErrorInvalidConfiguration;
  return with_up_to_float(
      task.dtype, [&](auto type) { return by_block<typename decltype(type)::type>(task, tile, taken); });
}

}  // namespace kernels::softmax
