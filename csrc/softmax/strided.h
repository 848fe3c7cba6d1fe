// The launchers of the forward kernels that work along a dim that is not the last. Pointers are device
// memory.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"

namespace kernels::softmax {

constexpr int kReservedBytes = 1024;  // of shared memory, by the system for each block

// x and y are [outer, length, inner], with at least one element; softmax goes along `length`. In x `pitch`
// elements lie between two neighbours along it and `stride` between two outer indices; y is contiguous.
// float32, float16 or bfloat16.
struct Strided {
  const void* x;
  void* y;
  int64_t outer, length, inner, stride, pitch;
  Dtype dtype;
  cudaStream_t stream;

  int64_t item_bytes() const { return dtype == Dtype::kFloat32 ? 4 : 2; }
  bool dense() const { return pitch == inner || length == 1; }  // what an outer index has is contiguous

  // The widest access, of 16, 4 and 2 bytes, whose boundaries all columns share.
  int64_t cell_bytes() const {
    const auto bits = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y) |
                      static_cast<uintptr_t>((stride | pitch | inner) * item_bytes());
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
  }
};

// How a tile, `length` times some columns of one outer index, lies on the threads of a block or a cluster.
// A cell is what one access moves; cell i of a tile is thread i % threads' and holds columns of class i %
// period.
struct Tile {
  int cluster;      // blocks that share a tile; 0 where it does not fit
  bool flat;        // all columns of an outer index, read as one contiguous row of 16-byte vectors
  int block, each;  // threads of a block, and elements that a thread holds
  int period;       // cells after which columns repeat
  int shift;        // where a tile is not flat, period is 2^shift
  int threads;      // of a block that take part: a multiple of period
  int columns;      // of a tile
  unsigned tiles;   // of an outer index
};

// `chunk`: bytes of a tile's columns to aim at, 32, 64 or 128; less is taken where a tile would not fit.
// `block`: 64, 128 or 256 threads with 64 elements each, 512 with 32, or 0 for as few as hold the tile.
Tile tile_for(const Strided& task, int chunk, int block);
cudaError_t strided_tiles(const Strided& task, const Tile& tile);

// A tile of 16-byte vectors in registers: `rows` of 2^shift, which `share` blocks of `threads` have.
struct StreamTile {
  int threads;  // 0 where it does not fit
  int share, shift, rows;
  int columns;     // softmaxes of a tile: a vector may hold some of each
  unsigned tiles;  // of an outer index
  bool ahead;      // blocks stay, and the next tiles come into shared memory meanwhile
};

// `chunk`: bytes of a tile's columns to aim at, 16 to 128; `ahead`: for the largest blocks.
StreamTile stream_tile_for(const Strided& task, int chunk, bool ahead);
// `taken`: 4 bytes of device memory, for tiles that come ahead of need.
cudaError_t strided_stream(const Strided& task, const StreamTile& tile, unsigned* taken);

// The same in the registers of `cluster` small blocks (1 to 16, of compute capability 9.0 on); x and y start,
// and rows lie apart, by whole vectors. `columns`: bytes of them to aim at, 16 to 256. 0 chooses either.
StreamTile strided_cluster_tile_for(const Strided& task, int cluster, int columns);
cudaError_t strided_cluster(const Strided& task, const StreamTile& tile);

// Columns up to kMostWordColumns, dense, of which a block holds all that an outer index has.
constexpr int kMostWordColumns = 64;
bool fits_words(const Strided& task);
cudaError_t strided_words(const Strided& task);

// Any length, read twice.
cudaError_t strided_online(const Strided& task, int chunk);

}  // namespace kernels::softmax
