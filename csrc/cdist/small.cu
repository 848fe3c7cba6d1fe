// Distances between points of few coordinates: bound by writing the output.
//
// A thread keeps kVector points of x2 in registers and goes down a column of rows: for each row of x1, which
// it reads from shared memory, one vector store. Rows whose length is no multiple of a vector start
// misaligned, but rows that are a few apart start alike, so a block takes only such rows and its stores stay
// whole.
#include <algorithm>

#include "../common/divide.cuh"
#include "exact.h"
#include "fast_norm.cuh"
#include "vectors.cuh"

namespace kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;

// How the outputs of one batch are shared out: 2^period classes of rows that start alike, blocks of each
// class down the rows and along m.
struct Share {
  int period;
  FastDivisor columns;  // blocks along m
  int64_t column_count;
  Divisor blocks;  // of a batch
  int64_t all;     // of all batches
};

template <typename T, Norm kNorm, int kD, int kVector, int kRows>
__global__ __launch_bounds__(kThreads) void small_kernel(const T* x1, const T* x2, T* out,
                                                         const __grid_constant__ Batches batches,
                                                         const __grid_constant__ Share share, float p) {
  __shared__ float rows[kRows][kD];
  const int64_t n = batches.n, m = batches.m;
  const int d = static_cast<int>(batches.d), period = 1 << share.period;
  for (int64_t unit = blockIdx.x; unit < share.all; unit += gridDim.x) {
    const int64_t b = share.blocks.quotient(unit);
    const auto inside = static_cast<unsigned>(unit - b * share.blocks.value);
    const int64_t group = share.columns.quotient(inside);
    const int64_t first_row = (group & (period - 1)) + (group >> share.period) * (period * kRows);
    // Elements before the first vector boundary of these rows; with some, thread 0 takes the partial vector.
    const int lead = static_cast<int>((kVector - (b * n + first_row) * m % kVector) % kVector);
    const int64_t first_column =
        (inside - group * share.column_count) * (kThreads * kVector) + (lead == 0 ? 0 : lead - kVector);
    const int64_t column = first_column + threadIdx.x * kVector;
    const int count = static_cast<int>(min((n - first_row + period - 1) >> share.period, int64_t{kRows}));

    float points[kVector][kD];
    const T* from = x2 + batches.start2(b) + column * d;
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
#pragma unroll
      for (int k = 0; k < kD; ++k) {
        const bool exists = column + v >= 0 && column + v < m && k < d;
        points[v][k] = exists ? convert<float>(from[v * d + k]) : 0.0f;
      }
    }
    __syncthreads();  // the unit before is still being read
    const T* first = x1 + batches.start1(b) + first_row * d;
    for (int at = threadIdx.x; at < count * kD; at += kThreads) {
      const int row = at / kD, k = at % kD;
      rows[row][k] = k < d ? convert<float>(first[int64_t{row} * period * d + k]) : 0.0f;
    }
    __syncthreads();
    if (column >= m) continue;
    const bool whole = column >= 0 && column + kVector <= m;
    T* target = out + (b * n + first_row) * m + column;
#pragma unroll(kD > 8 || kNorm == Norm::kAny ? 2 : 4)
    for (int r = 0; r < count; ++r, target += period * m) {
      float sums[1][kVector] = {};
#pragma unroll
      for (int k = 0; k < kD; ++k) {
        const float coordinate = rows[r][k];
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          sums[0][v] = FastDistance<kNorm>::add(sums[0][v], coordinate - points[v][k], p);
        }
      }
      take_roots<kNorm>(sums, p);
      store(target, sums[0], whole, -column, m - column);
    }
  }
}

int64_t greatest_common_divisor(int64_t a, int64_t b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

template <typename T, Norm kNorm, int kD, int kVector, int kRows>
cudaError_t launch(const Exact& call) {
  const Batches& batches = call.batches;
  const int64_t period = kVector / greatest_common_divisor(kVector, batches.m);
  const int64_t groups = ceil_div(ceil_div(batches.n, period), kRows) * period;
  const int64_t columns = ceil_div(batches.m + (period > 1 ? kVector : 0), kThreads * kVector);
  const int64_t all = batches.count() * groups * columns;
  Share share{0, FastDivisor(columns), columns, Divisor(groups * columns, all), all};
  while (1 << share.period < period) ++share.period;
  const int64_t blocks = std::min(all, kMaxBlocks);
  small_kernel<T, kNorm, kD, kVector, kRows><<<static_cast<unsigned>(blocks), kThreads, 0, call.stream>>>(
      static_cast<const T*>(call.x1), static_cast<const T*>(call.x2), static_cast<T*>(call.out), batches,
      share, static_cast<float>(call.p));
  return cudaGetLastError();
}

}  // namespace

cudaError_t cdist_small(const Exact& call) {
  if (call.batches.count() == 0 || call.batches.n == 0 || call.batches.m == 0) return cudaSuccess;
  return with_up_to_float(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = 16 / sizeof(T);           // elements of the widest store
    constexpr int kFew = sizeof(T) == 4 ? 16 : 64;  // rows of a block
    return with_fast_norm(call.p, [&](auto norm) {
      constexpr Norm kNorm = decltype(norm)::value;
      if constexpr (sizeof(T) == 4) {
        if (call.batches.d <= 3) return launch<T, kNorm, 3, kWide, kFew>(call);
      }
      if (call.batches.d <= 4) return launch<T, kNorm, 4, kWide, kFew>(call);
      if (call.batches.d <= 8) return launch<T, kNorm, 8, 4, 64>(call);
      if (call.batches.d <= kMostSmall) return launch<T, kNorm, kMostSmall, 4, 64>(call);
      return cudaErrorInvalidValue;
    });
  });
}

}  // namespace kernels
