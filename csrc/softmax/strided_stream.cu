// How columns are cut into tiles for blocks that stay, and how many of those there are.
#include "strided_stream.cuh"

#include <algorithm>

#include "current_device.h"

namespace kernels::softmax {
namespace {

constexpr int kLeastChunk = 32;       // bytes: a sector, the least that memory moves
constexpr int kReservedBytes = 1024;  // of shared memory, by the system for each block
constexpr int kVectorsOfMost = 16, kThreadsOfMost = 512;

// Threads and vectors of each, from the smallest to the largest tile.
struct Block {
  int threads, vectors;
};
constexpr Block kBlocks[] = {{32, 8}, {64, 8}, {64, 16}, {128, 16}, {256, 16}, {512, 16}};

Block block_for(int64_t vectors) {
  for (const Block& block : kBlocks) {
    if (block.threads * block.vectors >= vectors) return block;
  }
  return {};
}

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

template <typename T>
Tiles<T> tiles_of(const Strided& task, const StreamTile& tile) {
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
          tile.rows};
}

template <typename T, typename P>
cudaError_t launch(const Strided& task, const StreamTile& tile) {
  auto* kernel = &stream_kernel<T, P>;
  constexpr int kBytes = P::template shared_bytes<T>();
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const Tiles<T> all = tiles_of<T>(task, tile);
  const int room = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const int resident = std::min(P::kResident, room / (kBytes + kReservedBytes));
  const int64_t at_once = device_attribute(cudaDevAttrMultiProcessorCount) * resident / tile.share;
  const int64_t teams = std::min<int64_t>(all.count, std::max<int64_t>(at_once, 1));
  return launch_together(kernel, teams * tile.share, P::kThreads, kBytes, tile.share, task.stream, all);
}

template <typename T, int kThreads, int kVectors>
cudaError_t launch_block(const Strided& task, const StreamTile& tile) {
  if (tile.threads != kThreads || tile.vectors != kVectors) return cudaErrorInvalidValue;
  return launch<T, Plan<kThreads, kVectors, kVectors / 4, 6, false, false>>(task, tile);
}

template <typename T>
cudaError_t by_block(const Strided& task, const StreamTile& tile) {
  if (tile.share > 1) return launch<T, Plan<kThreadsOfMost, kVectorsOfMost, 4, 6, false, true>>(task, tile);
  switch (tile.threads * tile.vectors) {
    case 256:
      return launch_block<T, 32, 8>(task, tile);
    case 512:
      return launch_block<T, 64, 8>(task, tile);
    case 1024:
      return launch_block<T, 64, 16>(task, tile);
    case 2048:
      return launch_block<T, 128, 16>(task, tile);
    case 4096:
      return launch_block<T, 256, 16>(task, tile);
    default:
      return launch_block<T, 512, 16>(task, tile);
  }
}

}  // namespace

StreamTile stream_tile_for(const Strided& task, int chunk) {
  const bool packed = narrow(task);
  if (!packed && task.cell_bytes() != 16) return {};
  const int64_t wide = 16 / task.item_bytes();
  const int64_t rows = packed ? task.length * task.inner / wide : task.length;
  const int64_t lanes = packed ? 1 : task.inner / wide;
  constexpr int64_t kMost = kThreadsOfMost * kVectorsOfMost;
  int shift = std::min(log2_from(lanes), log2_from(chunk / 16));
  while (shift > 0 && rows << shift > kMost && 16 << shift > kLeastChunk) --shift;
  int share = 1;
  while (share < kMostShare && ceil_div(rows << shift, share) > kMost) share *= 2;
  if (ceil_div(rows << shift, share) > kMost || (share > 1 && !has_clusters())) return {};
  const Block block = share > 1 ? Block{kThreadsOfMost, kVectorsOfMost} : block_for(rows << shift);
  const auto tiles = static_cast<unsigned>(ceil_div(lanes, int64_t{1} << shift));
  if (task.outer * tiles > 2147483647) return {};
  const int columns = static_cast<int>(packed ? task.inner : wide << shift);
  return {block.threads, block.vectors, share, shift, static_cast<int>(rows), columns, tiles};
}

cudaError_t strided_stream(const Strided& task, const StreamTile& tile) {
  if (tile.threads == 0) return cudaErrorInvalidConfiguration;
  return with_up_to_float(task.dtype,
                          [&](auto type) { return by_block<typename decltype(type)::type>(task, tile); });
}

}  // namespace kernels::softmax
