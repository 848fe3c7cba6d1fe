// Distances by tiles, as a matrix product is computed, with a subtraction before each multiply-add.
//
// A thread keeps kRows x kColumns outputs in registers. Slices of coordinates lie in shared memory as they
// lie in memory, a point a row, so they are copied there without passing through registers, the next while
// this one is computed. A thread reads four coordinates of a point at once: those of its points of x1 stay in
// registers while those of x2 pass by. A scheduler issues one instruction a cycle, of which a term takes two,
// so that little else may be issued, and no read be waited for: each comes tens of terms before its use.
#include <limits>

#include "../common/divide.cuh"
#include "exact.h"
#include "fast_norm.cuh"
#include "register_slices.cuh"

namespace kernels {
namespace {

constexpr int64_t kMostCoordinates = 1 << 24;  // of which 128 times as many still fit an int

// Outputs of a thread, a multiple of four along each side.
struct Large {
  static constexpr int kRows = 8, kColumns = 8, kBlocksPerSM = 2;
};
struct Small {
  static constexpr int kRows = 4, kColumns = 4, kBlocksPerSM = 2;
};

// What every thread knows.
struct Work {
  const void *x1, *x2;
  void* out;
  Batches batches;
  int tiles, tiles_n, tiles_m;
  FastDivisor by_n, by_m, by_inner;
  float p;
  Dtype dtype;
  bool packed1, packed2, packed_out;  // whether vectors of four start at whole vectors
};

template <typename Shape>
struct Tile {
  static constexpr int kPoints1 = kSide * Shape::kRows, kPoints2 = kSide * Shape::kColumns;
  float first[2][kPoints1][kPitch], second[2][kPoints2][kPitch];
};

// Where a tile is. Worked out anew from its number wherever it is used, since registers are for sums.
template <typename Tiles>
struct Place {
  int b, rows, columns;  // of which batch, and points that are left from its first
  int64_t row, column;

  __device__ __forceinline__ Place(const Work& work, int index) {
    const int across = work.by_m.quotient(index);
    b = work.by_n.quotient(across);
    row = int64_t{Tiles::kPoints1} * (across - b * work.tiles_n);
    column = int64_t{Tiles::kPoints2} * (index - across * work.tiles_m);
    rows = static_cast<int>(min(work.batches.n - row, int64_t{Tiles::kPoints1}));
    columns = static_cast<int>(min(work.batches.m - column, int64_t{Tiles::kPoints2}));
  }
};

template <int kChunk>
__device__ __forceinline__ Pack<float, kChunk> read(const float* row) {
  return *reinterpret_cast<const Pack<float, kChunk>*>(row);
}

// The terms of `depth` coordinates of a slice, to a multiple of kChunk. `first` and `second` are this
// thread's first points; beyond the slice the rows' padding is read, and not used.
template <Norm kNorm, int kRows, int kColumns>
__device__ __forceinline__ void add_slice(float (&sums)[kRows][kColumns], const float* first,
                                          const float* second, int depth, float p) {
  constexpr bool kSpare = kNorm == Norm::kTwo || kNorm == Norm::kThree || kNorm == Norm::kThreeHalves;
  constexpr int kChunk = kSpare ? 4 : 2;  // as far as registers go
  static_assert(kChunk <= kPitch - kSlice && kColumns % 2 == 0);
  const auto at = [](int point) { return row_of(point / 4 * kApart + point % 4) * kPitch; };
  Pack<float, kChunk> points[kRows], others[2];
#pragma unroll
  for (int r = 0; r < kRows; ++r) points[r] = read<kChunk>(first + at(r));
  others[0] = read<kChunk>(second);
#pragma unroll 1
  for (int k = 0; k < depth; k += kChunk, first += kChunk, second += kChunk) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const bool last = c == kColumns - 1;
      others[(c + 1) % 2] = read<kChunk>(second + (last ? kChunk : at(c + 1)));
#pragma unroll
      for (int top = 0; top < kRows; top += 4) {
#pragma unroll
        for (int v = 0; v < kChunk; ++v) {
#pragma unroll
          for (int r = top; r < top + 4; ++r) {
            const float difference = points[r].values[v] - others[c % 2].values[v];
            sums[r][c] = FastDistance<kNorm>::add(sums[r][c], difference, p);
          }
        }
#pragma unroll
        for (int r = top; r < top + 4 && last; ++r) points[r] = read<kChunk>(first + at(r) + kChunk);
      }
    }
  }
}

__device__ __forceinline__ void store_four(void* out, int64_t at, const float (&values)[4], int64_t left,
                                           bool packed, Dtype dtype) {
  const bool whole = packed && left >= 4;
  if (dtype == Dtype::kFloat32) {
    store(static_cast<float*>(out) + at, values, whole, 0, left);
  } else if (dtype == Dtype::kBfloat16) {
    store(static_cast<__nv_bfloat16*>(out) + at, values, whole, 0, left);
  } else {
    store(static_cast<__half*>(out) + at, values, whole, 0, left);
  }
}

// This thread's outputs, of which the first is element `at`, and `rows` x `columns` are left from there.
template <bool kPlain, int kRows, int kColumns>
__device__ __forceinline__ void store_tile(const float (&roots)[kRows][kColumns], const Work& work,
                                           int64_t at, int rows, int columns) {
  const int64_t m = work.batches.m;
  float* out = static_cast<float*>(work.out) + at;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool exists = r / 4 * kApart + r % 4 < rows;
#pragma unroll
    for (int c = 0; c < kColumns; c += 4) {
      const int apart = c / 4 * kApart;
      const float four[4] = {roots[r][c], roots[r][c + 1], roots[r][c + 2], roots[r][c + 3]};
      if constexpr (kPlain) {  // a vector is whole or past the end
        if (exists && columns > apart) store(out + apart, four, true, 0, 4);
      } else if (exists) {
        store_four(work.out, at + apart, four, columns - apart, work.packed_out, work.dtype);
      }
    }
    const int64_t step = r % 4 == 3 ? (kApart - 3) * m : m;
    at += step, out += step;
  }
}

// kPlain: float32 in whole vectors, which is what a kernel of few instructions is for.
template <Norm kNorm, typename Shape, bool kPlain>
__global__ __launch_bounds__(kRegisterThreads,
                             Shape::kBlocksPerSM) void register_kernel(const __grid_constant__ Work work) {
  using Tiles = Tile<Shape>;
  extern __shared__ float4 room[];
  Tiles& tile = *reinterpret_cast<Tiles*>(room);
  const Batches& batches = work.batches;
  const int d = static_cast<int>(batches.d);
  const auto bring_slice = [&](int index, int k, int stage) {
    if (k < d && index < work.tiles) {
      const Place<Tiles> at(work, index);
      const int point = brought_point(), own = point * d + k + brought_coordinate();
      const int64_t outer = work.by_inner.quotient(at.b), inner = at.b - outer * batches.inner;
      const int64_t start1 = outer * batches.outer1 + inner * batches.inner1,
                    start2 = outer * batches.outer2 + inner * batches.inner2;
      const int left = d - k - brought_coordinate();
      bring<Tiles::kPoints1, kPlain>(tile.first[stage], work.x1, start1 + at.row * d + own, left,
                                     at.rows - point, d, work.packed1, work.dtype);
      bring<Tiles::kPoints2, kPlain>(tile.second[stage], work.x2, start2 + at.column * d + own, left,
                                     at.columns - point, d, work.packed2, work.dtype);
    }
    asm volatile("cp.async.commit_group;");
  };

  // A warp has 4 x 8 threads, so that it writes lines of 128 bytes.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int y = warp / 2 * 4 + lane / 8, x = warp % 2 * 8 + lane % 8;
  bring_slice(blockIdx.x, 0, 0);
  int stage = 0;
  // The next tile's first slice comes while this tile ends, where there are fewer blocks than tiles.
  for (int index = blockIdx.x; index < work.tiles; index += gridDim.x) {
    float sums[Shape::kRows][Shape::kColumns] = {};
#pragma unroll 1
    for (int k = 0; k < d; k += kSlice, stage ^= 1) {
      wait_for_copies<0>();
      __syncthreads();  // all have brought this slice and are done with the one before
      const bool last = k + kSlice >= d;
      bring_slice(last ? index + gridDim.x : index, last ? 0 : k + kSlice, stage ^ 1);
      add_slice<kNorm>(sums, tile.first[stage][y], tile.second[stage][x], min(d - k, kSlice), work.p);
    }
    take_roots<kNorm>(sums, work.p);
    const Place<Tiles> at(work, index);
    const int64_t first = (at.b * batches.n + at.row + 4 * y) * batches.m + at.column + 4 * x;
    store_tile<kPlain>(sums, work, first, at.rows - 4 * y, at.columns - 4 * x);
  }
}

bool starts_whole(const void* x, int64_t stride, Dtype dtype) {
  const size_t size = dtype == Dtype::kFloat32 ? 4 : 2;
  return stride % 4 == 0 && aligned(x, 4 * size);
}

template <Norm kNorm, typename Shape>
cudaError_t launch(const Exact& call) {
  using Tiles = Tile<Shape>;
  const Batches& batches = call.batches;
  const int64_t tiles_n = ceil_div(batches.n, Tiles::kPoints1),
                tiles_m = ceil_div(batches.m, Tiles::kPoints2);
  const int64_t tiles = batches.count() * tiles_n * tiles_m;
  if (tiles > std::numeric_limits<int>::max() / 2 || batches.d > kMostCoordinates)
    return cudaErrorInvalidConfiguration;
  const int side_n = static_cast<int>(tiles_n), side_m = static_cast<int>(tiles_m);
  Work work{call.x1,
            call.x2,
            call.out,
            batches,
            static_cast<int>(tiles),
            side_n,
            side_m,
            FastDivisor(side_n),
            FastDivisor(side_m),
            FastDivisor(batches.inner)};
  work.p = static_cast<float>(call.p);
  work.dtype = call.dtype;
  work.packed1 = starts_whole(call.x1, batches.d, call.dtype);
  work.packed2 = starts_whole(call.x2, batches.d, call.dtype);
  work.packed_out = starts_whole(call.out, batches.m, call.dtype);
  const bool plain = call.dtype == Dtype::kFloat32 && work.packed1 && work.packed2 && work.packed_out;
  const auto kernel = plain ? register_kernel<kNorm, Shape, true> : register_kernel<kNorm, Shape, false>;
  const int bytes = sizeof(Tiles);
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
    return error;
  }
  // A block a tile: as many blocks as the card holds at once keep step with each other, and took 7 % longer.
  kernel<<<work.tiles, kRegisterThreads, bytes, call.stream>>>(work);
  return cudaGetLastError();
}

}  // namespace

cudaError_t cdist_register(const Exact& call, bool large) {
  if (call.batches.count() == 0 || call.batches.n == 0 || call.batches.m == 0) return cudaSuccess;
  return with_fast_norm(call.p, [&](auto norm) {
    constexpr Norm kNorm = decltype(norm)::value;
    return large ? launch<kNorm, Large>(call) : launch<kNorm, Small>(call);
  });
}

}  // namespace kernels
