// How columns are cut into tiles, and which kernel takes them.
#include "strided.cuh"

#include <algorithm>
#include <numeric>

#include "current_device.h"
#include "strided_online.cuh"

namespace kernels::softmax {
namespace {

constexpr int kLeastChunk = 32;        // bytes: a sector, the least that memory moves
constexpr int64_t kEnoughTiles = 512;  // about four for each SM: more than that, and tiles may be wider
constexpr int64_t kEnoughElements = 4096;
constexpr int kLeastBlock = 64;  // threads
constexpr int kOnlineThreads = 512;

// That may share a tile on the current device.
int most_blocks() { return has_clusters() ? kMaxCluster : 1; }

int power_of_two_from(int64_t least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

// Threads and elements of each: the smallest of the choices that holds a tile, or the one that was asked for.
struct Block {
  int threads, each;
};

Block block_for(int64_t elements, bool narrow, int asked) {
  if (narrow) return {256, 64};
  if (asked > 0) return {asked, asked == 512 ? 32 : 64};
  if (elements <= 2048) return {64, 32};
  return {elements <= 4096 ? 64 : elements <= 8192 ? 128 : 256, 64};
}

// Narrow columns whose boundaries do not fall on vectors: one contiguous row, if a cluster holds that.
Tile flat_tile(const Strided& task, int asked) {
  if (!task.dense() || task.cell_bytes() == 16 || task.inner > kSharedColumns) return {};
  const int64_t wide = 16 / task.item_bytes(), elements = task.length * task.inner;
  const int period = static_cast<int>(task.inner / std::gcd(task.inner, wide));
  const bool on_boundaries = (reinterpret_cast<uintptr_t>(task.y) | elements * task.item_bytes()) % 16 == 0;
  const int64_t vectors = on_boundaries ? elements / wide : (elements + 2 * (wide - 1)) / wide;
  // Up to period - 1 threads of a block have no part in it.
  const Block least = block_for(vectors * wide, false, asked);
  const bool full = vectors * wide > least.threads / period * period * least.each;
  const Block block = full ? block_for(vectors * wide + least.each * period, false, asked) : least;
  const int active = block.threads / period * period;
  const int64_t cluster = ceil_div(vectors * wide, active * block.each);
  if (cluster > (block.threads < kSharingThreads ? 1 : most_blocks())) return {};
  return {static_cast<int>(cluster),    true, block.threads, block.each, period, 0, active,
          static_cast<int>(task.inner), 1};
}

Tile chunk_tile(const Strided& task, int period, const Block& block) {
  const int64_t wide = task.cell_bytes() / task.item_bytes(), columns = period * wide;
  const int64_t cluster = ceil_div(task.length, block.threads / period * (block.each / wide));
  int shift = 0;
  while (1 << shift < period) ++shift;
  return {static_cast<int>(std::min<int64_t>(cluster, kMaxCluster + 1)),
          false,
          block.threads,
          block.each,
          period,
          shift,
          block.threads,
          static_cast<int>(columns),
          static_cast<unsigned>(ceil_div(task.inner, columns))};
}

template <typename T>
Columns<T> columns_of(const Strided& task, const Tile& tile) {
  return {static_cast<const T*>(task.x),
          static_cast<T*>(task.y),
          task.outer,
          task.length,
          task.inner,
          task.stride,
          task.pitch,
          tile};
}

// Calls launch(width) with the elements of a cell as a constant.
template <typename T, typename Launch>
cudaError_t by_cell(const Strided& task, Launch&& launch) {
  const auto bytes = task.cell_bytes();
  if (bytes == 16) return launch(std::integral_constant<int, 16 / sizeof(T)>());
  if (bytes == 4) return launch(std::integral_constant<int, 4 / sizeof(T)>());
  if constexpr (sizeof(T) == 2) return launch(std::integral_constant<int, 1>());
  return cudaErrorMisalignedAddress;
}

template <typename T, int kThreads, int kEach>
cudaError_t launch_tiles(const Strided& task, const Tile& tile) {
  const Columns<T> all = columns_of<T>(task, tile);
  const auto launch = [&](auto* kernel) {
    const int64_t blocks = all.outer * tile.tiles * tile.cluster;
    return launch_together(kernel, blocks, kThreads, 0, tile.cluster, task.stream, all);
  };
  constexpr int kVectors = kEach / kPerVector<T>;
  if (tile.flat) return launch(&tile_kernel<T, kThreads, kVectors, FlatCells<T, kThreads, kVectors>>);
  return by_cell<T>(task, [&](auto wide) {
    constexpr int kWide = decltype(wide)::value, kCells = kEach / kWide;
    if constexpr (kWide == kPerVector<T> || kThreads == 256) {
      return launch(&tile_kernel<T, kThreads, kCells, ChunkCells<T, kThreads, kCells, kWide>>);
    }
    return cudaErrorInvalidValue;
  });
}

template <typename T>
cudaError_t launch_online(const Strided& task, const Tile& tile) {
  const Columns<T> all = columns_of<T>(task, tile);
  return by_cell<T>(task, [&](auto wide) {
    auto* kernel = &strided_online_kernel<T, kOnlineThreads, decltype(wide)::value>;
    return launch_together(kernel, all.outer * tile.tiles, kOnlineThreads, 0, 1, task.stream, all);
  });
}

}  // namespace

Tile tile_for(const Strided& task, int chunk, int block) {
  const Tile flat = flat_tile(task, block);
  if (flat.cluster > 0) return flat;
  const int64_t cell = task.cell_bytes(), lanes = power_of_two_from(task.inner * task.item_bytes() / cell);
  const auto elements = [&](int period) { return task.length * period * cell / task.item_bytes(); };
  const auto tile = [&](int period) {
    return chunk_tile(task, period, block_for(elements(period), cell < 16, block));
  };
  const auto fits = [&](const Tile& tile) {
    const bool shares = tile.block >= kSharingThreads && tile.columns <= kSharedColumns;
    return tile.cluster == 1 || (shares && tile.cluster <= most_blocks());
  };
  int period = static_cast<int>(std::clamp<int64_t>(chunk / cell, 1, lanes));
  while (!fits(tile(period)) && period * cell > kLeastChunk) period /= 2;
  // A short length leaves room for more columns.
  while (2 * period <= std::min<int64_t>(lanes, kLeastBlock) && elements(2 * period) <= kEnoughElements &&
         task.outer * tile(2 * period).tiles >= kEnoughTiles) {
    period *= 2;
  }
  return fits(tile(period)) ? tile(period) : Tile{};
}

cudaError_t strided_tiles(const Strided& task, const Tile& tile) {
  if (tile.cluster == 0) return cudaErrorInvalidConfiguration;
  return with_up_to_float(task.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (tile.block == 512) return launch_tiles<T, 512, 32>(task, tile);
    if (tile.block == 256) return launch_tiles<T, 256, 64>(task, tile);
    if (tile.block == 128) return launch_tiles<T, 128, 64>(task, tile);
    if (tile.each == 64) return launch_tiles<T, 64, 64>(task, tile);
    return launch_tiles<T, 64, 32>(task, tile);
  });
}

cudaError_t strided_online(const Strided& task, int chunk) {
  const int64_t cell = task.cell_bytes(), lanes = power_of_two_from(task.inner * task.item_bytes() / cell);
  const Tile tile =
      chunk_tile(task, static_cast<int>(std::clamp<int64_t>(chunk / cell, 1, lanes)), {kOnlineThreads, 64});
  return with_up_to_float(
      task.dtype, [&](auto type) { return launch_online<typename decltype(type)::type>(task, tile); });
}

}  // namespace kernels::softmax
