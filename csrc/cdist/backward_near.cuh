// What the product form leaves out of a gradient, from differences: half steps that hold a near pair.
#pragma once

#include "backward_pieces.cuh"

namespace kernels {

constexpr int kOwnOfWarp = 32;     // own points of a warp of the product kernel
constexpr int kHalf = kStep / 2;   // others that are left out together
constexpr int kNearThreads = 128;  // each has four own points and four coordinates
static_assert(kNearThreads * 16 == kOwnOfWarp * kCoordinates && kNearThreads * 4 == kOwnOfWarp * kHalf);

// left_out [batch, chunks, own warps, halves]: what the product kernel has not summed; out += the sums of it.
// A block for each of batch, chunk and own warp.
template <bool kOwnIsRows>
__global__ __launch_bounds__(kNearThreads) void near_kernel(const __grid_constant__ BackwardWork work,
                                                            const uint8_t* left_out, float* out,
                                                            int64_t own_warps, int64_t halves) {
  __shared__ float4 weights[kHalf][kOwnOfWarp / 4 + 1], others[kHalf][kCoordinates / 4];
  __shared__ uint8_t flags[kNearThreads];
  const int64_t own = blockIdx.x % own_warps * kOwnOfWarp, chunk = blockIdx.x / own_warps % work.chunks;
  const int64_t b = blockIdx.x / own_warps / work.chunks, k = chunk * kCoordinates;
  const int coordinates = static_cast<int>(min(int64_t{kCoordinates}, work.d - k));
  const int own_left = static_cast<int>(min(int64_t{kOwnOfWarp}, work.own_count - own));
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;  // of this thread's sums
  const float* mine = work.own + (b * work.own_count + own) * work.d + k;
  float points[4][4], sums[4][4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    load(points[r], mine + (row + r) * work.d + column, row + r < own_left ? coordinates - column : 0, false);
  }
  for (int64_t first = 0; first < halves; first += kNearThreads) {
    const bool is_left = first + threadIdx.x < halves && left_out[blockIdx.x * halves + first + threadIdx.x];
    flags[threadIdx.x] = is_left;
    if (!__syncthreads_or(is_left)) continue;
    for (int at = 0; at < kNearThreads; ++at) {
      if (!flags[at]) continue;
      const int64_t other = (first + at) * kHalf;
      const int others_left = static_cast<int>(min(int64_t{kHalf}, work.other_count - other));
      {  // four pairs of this thread, and eight coordinates of an other
        const int i = kOwnIsRows ? threadIdx.x / 4 : 4 * (threadIdx.x % 8);
        const int j = kOwnIsRows ? 4 * (threadIdx.x % 4) : threadIdx.x / 8;
        const int64_t pair = (b * work.rows + (kOwnIsRows ? own + i : other + j)) * work.columns +
                             (kOwnIsRows ? other + j : own + i);
        const int left = i < own_left && j < others_left ? (kOwnIsRows ? others_left - j : own_left - i) : 0;
        float grads[4], distances[4];
        load_any(grads, work.grad, pair, left, work.packed, work.dtype);
        load(distances, work.distance + pair, left, work.packed);
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          reinterpret_cast<float*>(weights[kOwnIsRows ? j + v : j])[kOwnIsRows ? i : i + v] =
              weight_of(grads[v], distances[v]);
        }
        for (int v = threadIdx.x; v < kHalf * kCoordinates / 4; v += kNearThreads) {
          const int point = v / (kCoordinates / 4), from = v % (kCoordinates / 4) * 4;
          float four[4];
          load(four, work.other + (b * work.other_count + other + point) * work.d + k + from,
               point < others_left ? coordinates - from : 0, false);
          others[point][from / 4] = make_float4(four[0], four[1], four[2], four[3]);
        }
      }
      __syncthreads();
#pragma unroll 4
      for (int j = 0; j < kHalf; ++j) {
        const float4 w = weights[j][row / 4], x = others[j][column / 4];
        const float ws[4] = {w.x, w.y, w.z, w.w}, xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[r][c] = fmaf(ws[r], points[r][c] - xs[c], sums[r][c]);
        }
      }
      __syncthreads();
    }
    __syncthreads();  // flags are read until here
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (row + r < own_left && column + c < coordinates) {
        out[(b * work.own_count + own + row + r) * work.d + k + column + c] += sums[r][c];
      }
    }
  }
}

}  // namespace kernels
