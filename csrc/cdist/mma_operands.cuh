// Points made ready for wgmma: centred, scaled, split into two float16 pieces (kernels/cdist/mma_operands.py
// says why that is right) and laid out as shared memory will hold them, so that a load is one contiguous
// copy.
#pragma once

#include "../common/device.cuh"
#include "mma.h"

namespace kernels::mma {

constexpr int kBlockBytes = kMmaTile * kMmaDepth * sizeof(__half);  // one piece of a tile's block: 16 KiB
constexpr int kTop = 9;                                             // a sampled coordinate ends below 2^10
constexpr float kLargest = 6.0e4f;                                  // under float16's 65504
constexpr int kMostUnit = 40;                                       // powers of two
constexpr float kPadding = 1e30f;                                   // the norm of a row that is not there
constexpr int kSampleGroups = 4, kSplitWarps = 8;

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

}  // namespace kernels::mma
