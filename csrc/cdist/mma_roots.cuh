// From the accumulators of a tile to distances in memory, and near pairs to the list.
#pragma once

#include "mma_tiles.cuh"

namespace kernels::mma {

struct Bound {  // a squared distance is near below tau (|a|^2 + |b|^2) + floor units^2
  float tau, floor;
};

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
      __stcs(reinterpret_cast<float4*>(out), (float4{y[0], y[1], y[2], y[3]}));
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

}  // namespace kernels::mma
