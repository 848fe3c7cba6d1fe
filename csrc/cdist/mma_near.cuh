// Near pairs, from differences of the points as they were given.
#pragma once

#include "mma_operands.cuh"

namespace kernels::mma {

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

}  // namespace kernels::mma
