// Which tiles a block takes, and their way through shared memory into accumulators.
#pragma once

#include "hopper_mma.cuh"
#include "mma_operands.cuh"

namespace kernels::mma {

template <int kBlocks>
struct Shape {
  static constexpr int kStages = kBlocks == 1 ? 4 : 3;
  static constexpr int kStageBytes = 2 * kBlockBytes;           // both pieces of one block of a tile of x2
  static constexpr int kTileBytes = kBlocks * 2 * kBlockBytes;  // a warpgroup's rows of x1
  static constexpr int kRowBytes = 2 * kTileBytes;
  static constexpr int kSharedBytes = kRowBytes + kStages * kStageBytes + 1024;  // and room to align
};

// Tiles in the order (batch, pair of rows, column), shared out evenly among blocks.
struct Walk {
  int pairs, tiles, batch_tiles1, batch_tiles2;
  int64_t n, m, total;
};

struct Tile {
  int batch, pair, column;
  int64_t left;       // tiles to go, this one included
  bool first = true;  // of its rows of x1 in this block

  __device__ Tile(const Walk& walk) {
    const int64_t from = walk.total * blockIdx.x / gridDim.x;
    column = static_cast<int>(from % walk.tiles);
    pair = static_cast<int>(from / walk.tiles % walk.pairs);
    batch = static_cast<int>(from / walk.tiles / walk.pairs);
    left = walk.total * (blockIdx.x + 1) / gridDim.x - from;
  }
  __device__ bool last(const Walk& walk) const { return left == 1 || column + 1 == walk.tiles; }
  __device__ void advance(const Walk& walk) {
    --left;
    first = ++column == walk.tiles;
    if (!first) return;
    column = 0;
    if (++pair < walk.pairs) return;
    pair = 0;
    ++batch;
  }
};

#if HOPPER

struct Barriers {
  uint64_t rows_full, rows_empty, full[4], empty[4];
};

template <int kBlocks>
__device__ void load_tiles(const Walk& walk, const MmaScratch& s, char* rows, char* stages,
                           Barriers& barriers) {
  using S = Shape<kBlocks>;
  uint32_t stage = 0, phase = 0, rows_phase = 0;
  for (Tile tile(walk); tile.left > 0; tile.advance(walk)) {
    if (tile.first) {
      hopper::barrier_wait(&barriers.rows_empty, rows_phase ^ 1);
      hopper::barrier_expect(&barriers.rows_full, S::kRowBytes);
      const int64_t at = static_cast<int64_t>(tile.batch) * walk.batch_tiles1 + tile.pair * 2;
      hopper::copy_bulk(rows, static_cast<const char*>(s.operand1) + at * S::kTileBytes, S::kRowBytes,
                        &barriers.rows_full);
      rows_phase ^= 1;
    }
    const int64_t at = static_cast<int64_t>(tile.batch) * walk.batch_tiles2 + tile.column;
    const char* from = static_cast<const char*>(s.operand2) + at * S::kTileBytes;
    for (int block = 0; block < kBlocks; ++block) {
      hopper::barrier_wait(&barriers.empty[stage], phase ^ 1);
      hopper::barrier_expect(&barriers.full[stage], S::kStageBytes);
      hopper::copy_bulk(stages + stage * S::kStageBytes, from + block * S::kStageBytes, S::kStageBytes,
                        &barriers.full[stage]);
      if (++stage == S::kStages) stage = 0, phase ^= 1;
    }
  }
}

// acc [2][64, 128] += the three products of one block: lo*hi, hi*lo, hi*hi, small terms first.
__device__ __forceinline__ void multiply(float (&acc)[2][64], uint32_t a, uint32_t b, bool add) {
  hopper::wgmma_fence();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      const uint64_t first = hopper::matrix(a + half * 8192 + (term == 0) * kBlockBytes);
      const uint64_t second = hopper::matrix(b + (term == 1) * kBlockBytes);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        hopper::wgmma_64x128x16(acc[half], first + step * 2, second + step * 2, add || term || step);
      }
    }
  }
  hopper::wgmma_commit();
  hopper::wgmma_wait();
}

#endif

}  // namespace kernels::mma
