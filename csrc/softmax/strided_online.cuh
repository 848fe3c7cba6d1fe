// Columns of any length on any card: a block reads some neighbouring ones once for the largest elements and
// the sums together, and once more for the result.
#pragma once

#include "strided.cuh"

namespace kernels::softmax {

// What a thread has seen of its columns, as pairs.
template <int kWide>
struct Seen {
  float largest[kWide], sums[kWide];

  __device__ Seen() {
#pragma unroll
    for (int j = 0; j < kWide; ++j) largest[j] = -INFINITY, sums[j] = 0;
  }
  __device__ void raise(const float (&most)[kWide]) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const float more = fmaxf(largest[j], most[j]);
      sums[j] = rescaled({largest[j], sums[j]}, more);
      largest[j] = more;
    }
  }
};

template <typename T, int kWide, int kBatch>
__device__ __forceinline__ void load_column(const T* x, int64_t pitch, int64_t rows,
                                            Cell<T, kWide> (&cells)[kBatch]) {
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    cells[b] = Cell<T, kWide>::load(x + b * pitch, b < rows);
  }
}

// grid: outer * tiles.
template <typename T, int kThreads, int kWide>
__global__ void __launch_bounds__(kThreads, 2) strided_online_kernel(Columns<T> all) {
  using Each = Cell<T, kWide>;
  constexpr int kBatch = kWide * sizeof(T) == 16 ? 4 : 8;
  __shared__ Exchange<kThreads, kWide> exchange;
  const unsigned outer = blockIdx.x / all.tile.tiles, chunk = blockIdx.x - outer * all.tile.tiles;
  const int64_t column =
      static_cast<int64_t>(chunk) * all.tile.columns + threadIdx.x % all.tile.period * kWide;
  const int64_t length = column < all.inner ? all.length : 0, first = threadIdx.x >> all.tile.shift;
  const int step = kThreads >> all.tile.shift;
  const T* x = all.x + static_cast<int64_t>(outer) * all.stride + column;
  T* y = all.y + static_cast<int64_t>(outer) * all.length * all.inner + column;
  Each cells[kBatch];

  Seen<kWide> seen;
  for (int64_t row = first; row < length; row += step * kBatch) {
    load_column(x + row * all.pitch, step * all.pitch, ceil_div(length - row, step), cells);
    Each most = Each::nothing();
#pragma unroll
    for (const Each& cell : cells) {
#pragma unroll
      for (int w = 0; w < Each::kWords; ++w) most.words[w] = larger<T>(most.words[w], cell.words[w]);
    }
    float values[kBatch][kWide], largest[kWide];
    most.widen(largest);
    seen.raise(largest);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) cells[b].widen(values[b]);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const Power power(seen.largest[j]);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) seen.sums[j] += power(values[b][j]);
    }
  }
  float largest[kWide];
#pragma unroll
  for (int j = 0; j < kWide; ++j) largest[j] = seen.largest[j];
  in_all_lanes(largest, all.tile.period, [](float a, float b) { return fmaxf(a, b); });
  seen.raise(largest);
  if (all.tile.period < kWarp)
    to_low_lanes(seen.sums, all.tile.period, [](float a, float b) { return a + b; });
  if (exchange.writes(all.tile)) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) exchange.mine(all.tile)[j] = {seen.largest[j], seen.sums[j]};
  }
  agree(exchange, all.tile, Peers<true>());

  const Partial* whole = exchange.parts + exchange.first(all.tile);
  for (int64_t row = first; row < length; row += step * kBatch) {
    const int64_t rows = ceil_div(length - row, step);
    load_column(x + row * all.pitch, step * all.pitch, rows, cells);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      float values[kWide];
      cells[b].widen(values);
#pragma unroll
      for (int j = 0; j < kWide; ++j) values[j] = Power(whole[j].largest)(values[j]) * whole[j].sum;
      if (b < rows) Each::store(y + (row + b * step) * all.inner, values);
    }
  }
}

}  // namespace kernels::softmax
