// Euclidean distances in float32 on Hopper's tensor cores: |a|^2 + |b|^2 - 2 a.b from float16 pieces.
// kernels/cdist/mma_operands.py says why the pieces are right; here they are laid out as wgmma reads them, so
// that a load is one contiguous copy.
#include "mma.h"

#include <algorithm>

#include "../common/device.cuh"
#include "hopper_mma.cuh"

namespace kernels {
namespace {

#ifndef STORE
#define STORE __stcs
#endif

constexpr int kBlockBytes = kMmaTile * kMmaDepth * sizeof(__half);  // one piece of a tile's block: 16 KiB
constexpr int kTop = 9;                                             // a sampled coordinate ends below 2^10
constexpr float kLargest = 6.0e4f;                                  // under float16's 65504
constexpr int kMostUnit = 40;                                       // powers of two
constexpr float kPadding = 1e30f;                                   // the norm of a row that is not there
constexpr int kSampleGroups = 4, kSplitWarps = 8;
constexpr int kThreads = 384;  // a warpgroup that loads and two that multiply

__device__ __forceinline__ float finite(float x) { return fabsf(x) <= 3.4028235e38f ? x : 0.f; }

__device__ __forceinline__ const float* point(const MmaPoints& p, int64_t b, int64_t i) {
  return p.x + b * p.stride_batch + i * p.stride_row;
}

// centre [depth]: the mean of a sample of the points; peak [blocks]: the largest distance from it by
// coordinate. Grid: blocks of 64 coordinates; block: (64, kSampleGroups).
__global__ void sample_kernel(MmaPoints x1, MmaPoints x2, int64_t d, float* centre, float* peak, int* todo) {
  constexpr int kMine = 2 * kMmaSample / kSampleGroups;
  __shared__ float shared[kSampleGroups][kMmaDepth];
  const int64_t k = blockIdx.x * kMmaDepth + threadIdx.x;
  const MmaPoints& p = threadIdx.y < kSampleGroups / 2 ? x1 : x2;
  float values[kMine], mean = 0, largest = 0;
#pragma unroll
  for (int s = 0; s < kMine; ++s) {
    const int64_t row = (threadIdx.y * kMine + s) % kMmaSample * (p.batch * p.rows) / kMmaSample;
    values[s] = k < d ? finite(point(p, row / p.rows, row % p.rows)[k * p.stride_col]) : 0.f;
  }
#pragma unroll
  for (int s = 0; s < kMine; ++s) mean += values[s] * (0.5f / kMmaSample);
  shared[threadIdx.y][threadIdx.x] = mean;
  __syncthreads();
  mean = 0;
  for (int g = 0; g < kSampleGroups; ++g) mean += shared[g][threadIdx.x];
  if (threadIdx.y == 0) centre[k] = mean;
#pragma unroll
  for (int s = 0; s < kMine; ++s) largest = fmaxf(largest, finite(fabsf(values[s] - mean)));
  for (int offset = 16; offset > 0; offset /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.y][threadIdx.x] = largest;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    for (int g = 0; g < kSampleGroups; ++g) largest = fmaxf(largest, fmaxf(shared[g][0], shared[g][32]));
    peak[blockIdx.x] = largest;
    if (blockIdx.x == 0) todo[0] = 0;
  }
}

// Biased exponent of the unit: a power of two by which a sampled coordinate comes to lie below 2^(kTop + 1),
// and whose square float32 has with room for norms. Points beyond that do not fit float16, or are all near.
__device__ int unit_exponent(const float* peak, int64_t blocks) {
  float largest = 0;
  for (int64_t i = 0; i < blocks; ++i) largest = fmaxf(largest, peak[i]);
  const int exponent = __float_as_int(largest) >> 23;
  return largest > 0 ? min(max(exponent - kTop, 127 - kMostUnit), 127 + kMostUnit) : 127;
}

// Where row `row` of a tile lies in its operand. Columns of the product are dealt out so that a thread's
// accumulators are four neighbours: it holds columns 2t, 2t + 1, 8 + 2t and 9 + 2t of every 16.
template <bool kDealt>
__device__ __forceinline__ int place_of(int row) {
  if constexpr (!kDealt) return row;
  const int in = row % 16;
  return row - in + (in % 4 / 2) * 8 + in / 4 * 2 + in % 2;
}

// A warp writes one padded row: pieces hi and lo of each block, 128 bytes each with their 16-byte chunks
// swizzled by the row, and the squared norm of hi + lo (NaN where float16 cannot hold the row).
template <bool kDealt>
__device__ void split_row(const MmaPoints& p, int64_t d, const float* centre, int exponent, char* operand,
                          float* norm, int64_t padded, int64_t row) {
  const int64_t blocks = ceil_div(d, kMmaDepth), b = row / padded, i = row % padded;
  const float* from = point(p, b, i);
  const float inverse = __int_as_float((254 - exponent) << 23);
  const double unit = __int_as_float(exponent << 23);
  const int lane = threadIdx.x % 32, place = place_of<kDealt>(i % kMmaTile);
  char* to = operand + (row / kMmaTile) * blocks * 2 * kBlockBytes + place * 128 +
             ((lane / 4) ^ (place % 8)) * 16 + lane % 4 * 4;
  double sum = 0;
  bool bad = false;
  for (int64_t block = 0; block < blocks; ++block) {
    float value[2], hi[2], lo[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int64_t k = block * kMmaDepth + lane * 2 + e;
      value[e] = i < p.rows && k < d ? (from[k * p.stride_col] - centre[k]) * inverse : 0.f;
      bad |= !(fabsf(value[e]) <= kLargest);
      if (!(fabsf(value[e]) <= kLargest)) value[e] = 0;
      hi[e] = __half2float(__float2half_rn(value[e]));
      lo[e] = __half2float(__float2half_rn(value[e] - hi[e]));
      const double moved = hi[e] + lo[e];  // exact: both are multiples of x's last place
      sum += moved * moved;
    }
    char* here = to + block * 2 * kBlockBytes;
    *reinterpret_cast<__half2*>(here) = __floats2half2_rn(hi[0], hi[1]);
    *reinterpret_cast<__half2*>(here + kBlockBytes) = __floats2half2_rn(lo[0], lo[1]);
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  bad = __any_sync(~0u, bad);
  if (lane == 0) {
    const float square = static_cast<float>(sum * unit * unit);
    norm[row] = i >= p.rows ? kPadding : bad ? __int_as_float(0x7FC00000) : square;
  }
}

__global__ void split_kernel(MmaPoints x1, MmaPoints x2, int64_t d, MmaScratch s, int64_t padded1,
                             int64_t padded2) {
  const int exponent = unit_exponent(s.peak, ceil_div(d, kMmaDepth));
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kSplitWarps + threadIdx.x / 32;
  const int64_t rows1 = x1.batch * padded1, rows2 = x2.batch * padded2;
  if (blockIdx.x == 0 && threadIdx.x == 0) *s.unit = __int_as_float(exponent << 23);
  if (row < rows1) {
    split_row<false>(x1, d, s.centre, exponent, static_cast<char*>(s.operand1), s.norm1, padded1, row);
  } else if (row < rows1 + rows2) {
    split_row<true>(x2, d, s.centre, exponent, static_cast<char*>(s.operand2), s.norm2, padded2, row - rows1);
  }
}

struct Bound {  // a squared distance is near below tau (|a|^2 + |b|^2) + floor units^2
  float tau, floor;
};

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
#ifdef PINGPONG
  asm volatile("bar.sync %0, 256;" ::"r"(1 + static_cast<int>(threadIdx.x / 128 - 1)) : "memory");
#endif
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
#ifdef PINGPONG
  asm volatile("bar.arrive %0, 256;" ::"r"(2 - static_cast<int>(threadIdx.x / 128 - 1)));
#endif
  hopper::wgmma_wait();
}

// The root to half a unit in the last place and a little: one step of Newton's from the approximate inverse.
__device__ __forceinline__ float root_of(float square) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(square));
  const float root = square * inverse;
  return fmaf(fmaf(-root, root, square), 0.5f * inverse, root);
}

// What a tile's roots are made with: the norms of this thread's rows and columns, in the points' own units.
struct Norms {
  float rows[2][2];
  float4 columns[8];
  float factor, tau, floor;  // of the products; of the sum of the norms; added to it
};

struct Row {  // of one thread in a tile: 8 times 4 neighbours
  const float* acc;
  float norm, factor, tau, near_below;
  float* out;
  int columns;  // of the output, from this tile on; at least 128 where all are there

  // norm1 is added to the product before norm2, so that only one rounding is as large as the sum of both.
  __device__ __forceinline__ float square(int q, int e, float norm2) const {
    return fmaf(factor, acc[8 * q + e % 2 + e / 2 * 4], norm) + norm2;
  }
  __device__ __forceinline__ bool is_far(float square, float norm2) const {  // not so for NaN
    return square > fmaf(tau, norm2, near_below);
  }
  __device__ __forceinline__ static int column(int q) { return 16 * q + threadIdx.x % 4 * 4; }
};

__device__ __forceinline__ float component(const float4& v, int e) {
  return e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w;
}

// `kWhole`: the tile lies inside the output, whose rows are aligned. Returns whether a pair is near.
template <bool kWhole>
__device__ __forceinline__ bool store_row(const Row& row, const Norms& norms) {
  bool near = false;
#pragma unroll
  for (int q = 0; q < 8; ++q) {
    float y[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float norm2 = component(norms.columns[q], e), square = row.square(q, e, norm2);
      near |= !row.is_far(square, norm2);
      y[e] = root_of(square);
    }
    float* out = row.out + Row::column(q);
    if constexpr (kWhole) {
      STORE(reinterpret_cast<float4*>(out), (float4{y[0], y[1], y[2], y[3]}));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (Row::column(q) + e < row.columns) out[e] = y[e];
      }
    }
  }
  return near;
}

// NaN for the near pairs of a row that has one.
__device__ __forceinline__ void mark_row(const Row& row, const Norms& norms) {
#pragma unroll
  for (int q = 0; q < 8; ++q) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float norm2 = component(norms.columns[q], e);
      const bool near = !row.is_far(row.square(q, e, norm2), norm2);
      if (near && Row::column(q) + e < row.columns) row.out[Row::column(q) + e] = __int_as_float(0x7FC00000);
    }
  }
}

template <bool kWhole>
__device__ __forceinline__ void store_tile(const float (&acc)[2][64], const Walk& walk, const Tile& tile,
                                           int group, const Norms& norms, float* out, int* todo) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int64_t b = tile.batch, j = tile.column * kMmaTile;
  const int64_t top = tile.pair * kMmaPair + group * kMmaTile + warp * kMmaStrip;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    bool near = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t i = top + half * 64 + r * 8 + lane / 4;
      const float norm = norms.rows[half][r];
      const Row row{acc[half] + 2 * r,
                    norm,
                    norms.factor,
                    norms.tau,
                    fmaf(norms.tau, norm, norms.floor),
                    out + (b * walk.n + i) * walk.m + j,
                    static_cast<int>(min(walk.m - j, kMmaTile))};
      if (i < walk.n && store_row<kWhole>(row, norms)) {
        mark_row(row, norms);
        near = true;
      }
    }
    if (__any_sync(~0u, near) && lane == 0) {
      const int64_t strip = b * ceil_div(walk.n, kMmaStrip) + (top + half * 64) / kMmaStrip;
      todo[1 + atomicAdd(todo, 1)] = static_cast<int>(strip * walk.tiles + tile.column);
    }
  }
}

template <int kBlocks>
__device__ void multiply_tiles(const Walk& walk, const MmaScratch& s, const char* rows, const char* stages,
                               Barriers& barriers, int group, float* out, int* todo, Bound bound) {
  using S = Shape<kBlocks>;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const float unit = *s.unit;
  const uint32_t a = hopper::shared_address(rows) + group * S::kTileBytes, b = hopper::shared_address(stages);
  uint32_t stage = 0, phase = 0, rows_phase = 0;
  float acc[2][64];
  Norms norms;
#ifdef PINGPONG
  if (group == 1) asm volatile("bar.arrive 1, 256;");
#endif
  norms.factor = -2.f * unit * unit, norms.tau = bound.tau, norms.floor = bound.floor * unit * unit;
  for (Tile tile(walk); tile.left > 0; tile.advance(walk)) {
    if (tile.first) {
      const float* from =
          s.norm1 + (static_cast<int64_t>(tile.batch) * walk.batch_tiles1 + tile.pair * 2 + group) * kMmaTile;
      for (int i = 0; i < 4; ++i)
        norms.rows[i / 2][i % 2] = from[i / 2 * 64 + warp * 16 + i % 2 * 8 + lane / 4];
      hopper::barrier_wait(&barriers.rows_full, rows_phase);
      rows_phase ^= 1;
    }
    const float* from =
        s.norm2 + (static_cast<int64_t>(tile.batch) * walk.batch_tiles2 + tile.column) * kMmaTile;
#pragma unroll
    for (int q = 0; q < 8; ++q)
      norms.columns[q] = *reinterpret_cast<const float4*>(from + 16 * q + lane % 4 * 4);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      hopper::barrier_wait(&barriers.full[stage], phase);
      multiply(acc, a + block * S::kStageBytes, b + stage * S::kStageBytes, block > 0);
      if (lane == 0) hopper::barrier_arrive(&barriers.empty[stage]);
      if (++stage == S::kStages) stage = 0, phase ^= 1;
    }
    if (tile.last(walk) && lane == 0) hopper::barrier_arrive(&barriers.rows_empty);
    if (walk.m % 4 == 0 && (tile.column + 1) * kMmaTile <= walk.m) {
      store_tile<true>(acc, walk, tile, group, norms, out, todo);
    } else {
      store_tile<false>(acc, walk, tile, group, norms, out, todo);
    }
  }
}

#endif

// Warpgroup 0 loads; 1 and 2 multiply, each its 128 of the block's 256 rows of x1 with every tile of x2 that
// passes. One works on its tile's roots while the other multiplies.
template <int kBlocks>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(Walk walk, MmaScratch s, float* out, int* todo, Bound bound) {
#if HOPPER
  using S = Shape<kBlocks>;
  extern __shared__ char dynamic[];
  __shared__ Barriers barriers;
  char* rows = dynamic + (1024 - hopper::shared_address(dynamic) % 1024) % 1024;
  char* stages = rows + S::kRowBytes;
  if (threadIdx.x == 0) {
    hopper::barrier_init(&barriers.rows_full, 1);
    hopper::barrier_init(&barriers.rows_empty, 8);
    for (int i = 0; i < S::kStages; ++i) {
      hopper::barrier_init(&barriers.full[i], 1);
      hopper::barrier_init(&barriers.empty[i], 8);
    }
    hopper::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    hopper::give_registers<40>();
    if (threadIdx.x == 0) load_tiles<kBlocks>(walk, s, rows, stages, barriers);
  } else {
    hopper::take_registers<232>();
    multiply_tiles<kBlocks>(walk, s, rows, stages, barriers, threadIdx.x / 128 - 1, out, todo, bound);
  }
#endif
}

constexpr int kNearBlocks = 1024;  // they share out the list, whose length only the device knows
constexpr int kNearThreads = 256, kNearRows = 4;  // a thread has 4 rows and 2 columns of a strip
static_assert(kNearThreads * 2 == kMmaTile * kMmaStrip / kNearRows, "A strip is not covered.");

// One distance with differences divided by the power of two below the largest: where squares left the range.
__device__ float scaled_distance(const float* a, int64_t stride_a, const float* b, int64_t stride_b,
                                 int64_t d) {
  float largest = 0;
  for (int64_t k = 0; k < d; ++k) largest = fmaxf(largest, fabsf(a[k * stride_a] - b[k * stride_b]));
  const int exponent = min(max(__float_as_int(largest) >> 23, 1), 253);
  const float inverse = __int_as_float((254 - exponent) << 23);
  float sum = 0;
  for (int64_t k = 0; k < d; ++k) {
    const float difference = (a[k * stride_a] - b[k * stride_b]) * inverse;
    sum = fmaf(difference, difference, sum);
  }
  return sqrtf(sum) * __int_as_float(exponent << 23);
}

// Coordinates [start, start + kMmaDepth) of `kRows` points to shared memory, by coordinate; 0 beyond either
// end.
template <int kRows>
__device__ void gather(float (&to)[kMmaDepth][kRows + 1], const MmaPoints& p, int64_t b, int64_t first,
                       int64_t start, int64_t d) {
  for (int at = threadIdx.x; at < kRows * kMmaDepth; at += kNearThreads) {
    const int64_t i = first + at / kMmaDepth, k = start + at % kMmaDepth;
    to[at % kMmaDepth][at / kMmaDepth] = i < p.rows && k < d ? point(p, b, i)[k * p.stride_col] : 0.f;
  }
}

// The listed strips of 16 x 128 again, from differences of the given points; only what is NaN is written.
__global__ void __launch_bounds__(kNearThreads)
    near_kernel(MmaPoints x1, MmaPoints x2, float* out, const int* todo, int64_t d, int tiles) {
  __shared__ float first[kMmaDepth][kMmaStrip + 1], second[kMmaDepth][kMmaTile + 1];
  const int64_t strips = ceil_div(x1.rows, kMmaStrip);
  const int top = threadIdx.x / 64 * kNearRows, left = threadIdx.x % 64;
  for (int at = blockIdx.x; at < todo[0]; at += gridDim.x) {
    const int item = todo[1 + at];
    const int64_t b = item / tiles / strips, b1 = x1.batch > 1 ? b : 0, b2 = x2.batch > 1 ? b : 0;
    const int64_t i = item / tiles % strips * kMmaStrip, j = item % tiles * kMmaTile;
    float sum[kNearRows][2] = {};
    for (int64_t start = 0; start < d; start += kMmaDepth) {
      __syncthreads();
      gather<kMmaStrip>(first, x1, b1, i, start, d);
      gather<kMmaTile>(second, x2, b2, j, start, d);
      __syncthreads();
#pragma unroll 8
      for (int k = 0; k < kMmaDepth; ++k) {
#pragma unroll
        for (int r = 0; r < kNearRows; ++r) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const float difference = first[k][top + r] - second[k][left + c * 64];
            sum[r][c] = fmaf(difference, difference, sum[r][c]);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kNearRows; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int64_t row = i + top + r, column = j + left + c * 64;
        if (row >= x1.rows || column >= x2.rows) continue;
        float* here = out + (b * x1.rows + row) * x2.rows + column;
        if (!isnan(*here)) continue;
        const float *a = point(x1, b1, row), *other = point(x2, b2, column);
        const bool extreme = sum[r][c] < 1e-24f || sum[r][c] > 1e36f;
        *here = extreme ? scaled_distance(a, x1.stride_col, other, x2.stride_col, d) : sqrtf(sum[r][c]);
      }
    }
  }
}

template <int kBlocks>
cudaError_t launch(Walk walk, const MmaScratch& s, float* out, int* todo, Bound bound, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  constexpr int kBytes = Shape<kBlocks>::kSharedBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(product_kernel<kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = static_cast<int>(std::min<int64_t>(processors, walk.total));
  product_kernel<kBlocks><<<blocks, kThreads, kBytes, stream>>>(walk, s, out, todo, bound);
  return cudaGetLastError();
}

}  // namespace

int64_t mma_padded(int64_t rows, int64_t to) { return ceil_div(rows, to) * to; }

int64_t mma_strips(int64_t batch, int64_t n, int64_t m) {
  return batch * ceil_div(n, kMmaStrip) * ceil_div(m, kMmaTile);
}

int64_t mma_operand_bytes(int64_t batch, int64_t rows, int64_t d, int64_t to) {
  return batch * mma_padded(rows, to) * ceil_div(d, kMmaDepth) * kMmaDepth * 2 * sizeof(__half);
}

bool mma_available() {  // without Hopper's instructions the kernel is empty, and has no shared memory of its
                        // own
  cudaFuncAttributes attributes;
  const bool known = cudaFuncGetAttributes(&attributes, product_kernel<1>) == cudaSuccess;
  if (!known) cudaGetLastError();
  return known && attributes.sharedSizeBytes > 0;
}

cudaError_t cdist_mma(const MmaPoints& x1, const MmaPoints& x2, const MmaScratch& scratch, float* out,
                      int* todo, int64_t batch, int64_t d, cudaStream_t stream) {
  const int64_t blocks = ceil_div(d, kMmaDepth);
  const int64_t padded1 = mma_padded(x1.rows, kMmaPair), padded2 = mma_padded(x2.rows, kMmaTile);
  sample_kernel<<<blocks, dim3(kMmaDepth, kSampleGroups), 0, stream>>>(x1, x2, d, scratch.centre,
                                                                       scratch.peak, todo);
  const int64_t rows = x1.batch * padded1 + x2.batch * padded2;
  split_kernel<<<ceil_div(rows, kSplitWarps), kSplitWarps * 32, 0, stream>>>(x1, x2, d, scratch, padded1,
                                                                             padded2);
  Walk walk;
  walk.n = x1.rows, walk.m = x2.rows;
  walk.pairs = static_cast<int>(padded1 / kMmaPair), walk.tiles = static_cast<int>(padded2 / kMmaTile);
  walk.batch_tiles1 = x1.batch > 1 ? static_cast<int>(padded1 / kMmaTile) : 0;
  walk.batch_tiles2 = x2.batch > 1 ? walk.tiles : 0;
  walk.total = batch * walk.pairs * walk.tiles;
  // kernels/cdist/mma_operands.py derives both. Steps: those that add to a sum of large terms.
  const float steps = static_cast<float>(12 * blocks - 8);
  const Bound bound{(16 + steps) / 128, static_cast<float>(blocks * kMmaDepth) / 256};
  const cudaError_t error = blocks == 1 ? launch<1>(walk, scratch, out, todo, bound, stream)
                                        : launch<2>(walk, scratch, out, todo, bound, stream);
  if (error != cudaSuccess) return error;
  const int64_t strips = std::min<int64_t>(mma_strips(batch, x1.rows, x2.rows), kNearBlocks);
  near_kernel<<<strips, kNearThreads, 0, stream>>>(x1, x2, out, todo, d, walk.tiles);
  return cudaGetLastError();
}

}  // namespace kernels
