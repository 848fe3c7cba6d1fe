// Distances between points of few coordinates: bound by writing the output.
//
// A thread keeps kVector points of x2 in registers and goes down a column of rows: for each row of x1, which
// it reads from shared memory, one vector store. Rows whose length is no multiple of a vector start
// misaligned, but rows that are a few apart start alike, so a block takes only such rows and its stores stay
// whole.
#include <algorithm>

#include "exact.h"
#include "fast_norm.cuh"
#include "vectors.cuh"

namespace kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;

// How the outputs of one batch are shared out: `period` classes of rows that start alike, kRows a block.
struct Split {
  int64_t period, groups, columns;  // groups of rows, blocks along m

  HOST_DEVICE int64_t blocks() const { return groups * period * columns; }
};

template <typename T, Norm kNorm, int kD, int kVector, int kRows>
__global__ __launch_bounds__(kThreads) void small_kernel(const T* x1, const T* x2, T* out, Batches batches,
                                                         Split split, float p) {
  __shared__ float4 rows[kRows][kD / 4], passing[kThreads * kVector];
  const int64_t n = batches.n, m = batches.m;
  const int d = static_cast<int>(batches.d);
  for (int64_t unit = blockIdx.x; unit < batches.count() * split.blocks(); unit += gridDim.x) {
    const int64_t b = unit / split.blocks(), inside = unit % split.blocks();
    const int64_t column_block = inside % split.columns, group = inside / split.columns;
    const int64_t first_row = group % split.period + group / split.period * (split.period * kRows);
    // Elements before the first vector boundary of these rows; with some, thread 0 takes the partial vector.
    const int lead = static_cast<int>((kVector - (b * n + first_row) * m % kVector) % kVector);
    const int64_t first_column = column_block * kThreads * kVector + (lead == 0 ? 0 : lead - kVector);
    const int64_t column = first_column + threadIdx.x * kVector;

    __syncthreads();  // the unit before is still being read
    for (int at = threadIdx.x; at < kRows * kD; at += kThreads) {
      const int64_t row = first_row + at / kD * split.period;
      const bool inside_x1 = row < n && at % kD < d;
      reinterpret_cast<float*>(rows)[at] =
          inside_x1 ? convert<float>(x1[batches.start1(b) + row * d + at % kD]) : 0.0f;
    }
    float points[kVector][kD];
#pragma unroll
    for (int k = 0; k < kD; k += 4) {
      // Through shared memory: a thread's own points are far from its neighbours'.
      for (int at = threadIdx.x; at < 4 * kThreads * kVector; at += kThreads) {
        const int64_t j = first_column + at / 4;
        const bool inside_x2 = j >= 0 && j < m && k + at % 4 < d;
        reinterpret_cast<float*>(passing)[at] =
            inside_x2 ? convert<float>(x2[batches.start2(b) + j * d + k + at % 4]) : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const float4 four = passing[threadIdx.x * kVector + v];
        points[v][k] = four.x, points[v][k + 1] = four.y, points[v][k + 2] = four.z,
        points[v][k + 3] = four.w;
      }
      if (k + 4 < kD) __syncthreads();
    }

    if (column >= m) continue;
    const bool whole = column >= 0 && column + kVector <= m;
    const int64_t left = (n - first_row + split.period - 1) / split.period;
    const int count = static_cast<int>(left < kRows ? left : kRows);
    T* target = out + (b * n + first_row) * m + column;
#pragma unroll(kD > 8 ? 2 : 4)
    for (int r = 0; r < count; ++r, target += split.period * m) {
      float sums[kVector] = {};
#pragma unroll
      for (int k = 0; k < kD; k += 4) {
        const float4 four = rows[r][k / 4];
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          sums[v] = FastDistance<kNorm>::add(sums[v], four.x - points[v][k], p);
          sums[v] = FastDistance<kNorm>::add(sums[v], four.y - points[v][k + 1], p);
          sums[v] = FastDistance<kNorm>::add(sums[v], four.z - points[v][k + 2], p);
          sums[v] = FastDistance<kNorm>::add(sums[v], four.w - points[v][k + 3], p);
        }
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v) sums[v] = FastDistance<kNorm>::root(sums[v], p);
      store(target, sums, whole, -column, m - column);
    }
  }
}

int64_t greatest_common_divisor(int64_t a, int64_t b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

template <typename T, Norm kNorm, int kD, int kVector, int kRows>
cudaError_t launch(const Exact& call) {
  const Batches& batches = call.batches;
  Split split;
  split.period = kVector / greatest_common_divisor(kVector, batches.m);
  split.groups = ceil_div(ceil_div(batches.n, split.period), kRows);
  split.columns = ceil_div(batches.m + (split.period > 1 ? kVector : 0), kThreads * kVector);
  const int64_t blocks = std::min(batches.count() * split.blocks(), kMaxBlocks);
  small_kernel<T, kNorm, kD, kVector, kRows><<<static_cast<unsigned>(blocks), kThreads, 0, call.stream>>>(
      static_cast<const T*>(call.x1), static_cast<const T*>(call.x2), static_cast<T*>(call.out), batches,
      split, static_cast<float>(call.p));
  return cudaGetLastError();
}

}  // namespace

cudaError_t cdist_small(const Exact& call) {
  if (call.batches.count() == 0 || call.batches.n == 0 || call.batches.m == 0) return cudaSuccess;
  return with_up_to_float(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = 16 / sizeof(T);  // elements of the widest store
    constexpr int kFew =
        sizeof(T) == 4 ? 16 : 64;  // rows of a block: as many as make up for reading its points
    return with_fast_norm(call.p, [&](auto norm) {
      constexpr Norm kNorm = decltype(norm)::value;
      if (call.batches.d <= 4) return launch<T, kNorm, 4, kWide, kFew>(call);
      if (call.batches.d <= 8) return launch<T, kNorm, 8, 4, 64>(call);
      if (call.batches.d <= kMostSmall) return launch<T, kNorm, kMostSmall, 4, 64>(call);
      return cudaErrorInvalidValue;
    });
  });
}

}  // namespace kernels
