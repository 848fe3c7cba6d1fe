// Distances by tiles, as a matrix product is computed, with a subtraction before each multiply-add.
//
// A thread keeps kPer x kPer outputs in registers. Slices of coordinates lie in shared memory as they lie in
// memory, a point a row, so they are copied there without passing through registers, the next while this one
// is computed. A thread reads four coordinates of a point at once: those of its points of x1 stay in
// registers while those of x2 pass by.
#include <algorithm>
#include <limits>

#include "exact.h"
#include "fast_norm.cuh"
#include "vectors.cuh"

namespace kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kSide = 16;  // threads along each side of a tile
constexpr int kBlocksPerSM = 2;
constexpr int kSlice = 32;                     // coordinates
constexpr int kPitch = kSlice + 4;             // of a row: eight neighbouring rows meet 32 banks
constexpr int64_t kMostCoordinates = 1 << 24;  // of which 128 times as many still fit an int
constexpr int kStages = 2;
constexpr int kChunk = 2;  // coordinates that a thread reads at once

// What every thread knows.
struct Work {
  const void *x1, *x2;
  void* out;
  Batches batches;
  int tiles_n, tiles_m;
  float p;
  Dtype dtype;
  bool packed1, packed2, packed_out;  // whether vectors of four start at whole vectors
};

template <int kSize>
struct Tile {
  static constexpr int kPer = kSize / kSide, kGroups = kPer / 4;
  float first[kStages][kSize][kPitch], second[kStages][kSize][kPitch];

  // The row of shared memory that holds a point of the tile: points four apart are neighbours, since a thread
  // has four in a row.
  __device__ static int row_of(int point) {
    constexpr int kGroup = kSize / kGroups;
    return point / kGroup * kGroup + point % 4 * (kGroup / 4) + point % kGroup / 4;
  }
};

template <int kBytes>
__device__ __forceinline__ void copy_async(float* to, const float* from, bool exists) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(kBytes),
               "r"(exists ? kBytes : 0));  // what does not exist is 0
}

template <int kKeep>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kKeep) : "memory");
}

// Four coordinates of a point where no vector of memory holds them, or where they must be widened.
__device__ __forceinline__ void bring_four(float* to, const void* x, int64_t at, int left, bool packed,
                                           Dtype dtype) {
  if (dtype == Dtype::kFloat32) {
    const float* from = static_cast<const float*>(x) + at;
#pragma unroll
    for (int v = 0; v < 4; ++v) copy_async<4>(to + v, from + (v < left ? v : 0), v < left);
    return;
  }
  float values[4];
  if (dtype == Dtype::kBfloat16) {
    load(values, static_cast<const __nv_bfloat16*>(x) + at, left, packed);
  } else {
    load(values, static_cast<const __half*>(x) + at, left, packed);
  }
  *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
}

// Coordinates from k of `count` points -> rows. Points past the end stand for the last one: what becomes of
// them is not stored. Coordinates past the end are 0 in both inputs, which adds nothing to any norm.
template <int kSize, bool kPlain>
__device__ __forceinline__ void bring(float (*rows)[kPitch], const void* x, int64_t start, int count, int d,
                                      int k, bool packed, Dtype dtype) {
  constexpr int kVectors = kSlice / 4, kApart = kThreads / kVectors;  // between a thread's points
  const int chunk = 4 * (threadIdx.x % kVectors), first = threadIdx.x / kVectors;
  const int left = d - k - chunk;
  start += left > 0 ? k + chunk : 0;
  if constexpr (kPlain) {
    const float* from = static_cast<const float*>(x) + start;
#pragma unroll
    for (int i = 0; i < kSize / kApart; ++i) {
      const int point = first + i * kApart;
      copy_async<16>(rows[Tile<kSize>::row_of(point)] + chunk, from + min(point, count - 1) * d, left > 0);
    }
  } else {
#pragma unroll 1
    for (int point = first; point < kSize; point += kApart) {
      const int64_t at = start + min(point, count - 1) * d;
      bring_four(rows[Tile<kSize>::row_of(point)] + chunk, x, at, left, packed, dtype);
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

__device__ __forceinline__ Pack<float, kChunk> read(const float* coordinates) {
  return *reinterpret_cast<const Pack<float, kChunk>*>(coordinates);
}

// kPlain: float32 in whole vectors, which is what a kernel of few instructions is for.
template <Norm kNorm, int kSize, bool kPlain>
__global__ __launch_bounds__(kThreads, kBlocksPerSM) void register_kernel(const __grid_constant__ Work work) {
  using Tiles = Tile<kSize>;
  constexpr int kPer = Tiles::kPer,
                kApart = kSize / Tiles::kGroups;  // groups of four points, and their distance
  extern __shared__ float4 room[];
  Tiles& tile = *reinterpret_cast<Tiles*>(room);
  const Batches& batches = work.batches;
  const int64_t n = batches.n, m = batches.m;
  const int64_t column = int64_t{kSize} * (blockIdx.x % work.tiles_m);
  const int64_t row = int64_t{kSize} * (blockIdx.x / work.tiles_m % work.tiles_n);
  const int64_t b = blockIdx.x / work.tiles_m / work.tiles_n;
  const int d = static_cast<int>(batches.d);
  const int64_t start1 = batches.start1(b) + row * d, start2 = batches.start2(b) + column * d;
  const int count1 = static_cast<int>(min(n - row, int64_t{kSize}));
  const int count2 = static_cast<int>(min(m - column, int64_t{kSize}));

  // A warp has 4 x 8 threads, so that it writes lines of 128 bytes.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int y = warp / 2 * 4 + lane / 8, x = warp % 2 * 8 + lane % 8;

  const int slices = (d + kSlice - 1) / kSlice;
  const auto bring_slice = [&](int slice) {
    if (slice < slices) {
      const int k = kSlice * slice, stage = slice % kStages;
      bring<kSize, kPlain>(tile.first[stage], work.x1, start1, count1, d, k, work.packed1, work.dtype);
      bring<kSize, kPlain>(tile.second[stage], work.x2, start2, count2, d, k, work.packed2, work.dtype);
    }
    asm volatile("cp.async.commit_group;");
  };

  float sums[kPer][kPer] = {};
  for (int slice = 0; slice < kStages - 1; ++slice) bring_slice(slice);
  for (int slice = 0; slice < slices; ++slice) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // all have brought this slice and are done with the one before
    bring_slice(slice + kStages - 1);
    const auto* first = tile.first[slice % kStages] + y;
    const auto* second = tile.second[slice % kStages] + x;
#pragma unroll(kPlain&& kNorm != Norm::kAny ? 4 : 1)  // as far as registers go
    for (int k = 0; k < kSlice; k += kChunk) {
      Pack<float, kChunk> points[kPer];
#pragma unroll
      for (int r = 0; r < kPer; ++r) points[r] = read(first[r / 4 * kApart + r % 4 * (kApart / 4)] + k);
#pragma unroll
      for (int c = 0; c < kPer; ++c) {
        const auto other = read(second[c / 4 * kApart + c % 4 * (kApart / 4)] + k);
#pragma unroll
        for (int v = 0; v < kChunk; ++v) {
#pragma unroll
          for (int r = 0; r < kPer; ++r) {
            sums[r][c] = FastDistance<kNorm>::add(sums[r][c], points[r].values[v] - other.values[v], work.p);
          }
        }
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kPer; ++r) {
    const int64_t i = row + r / 4 * kApart + 4 * y + r % 4;
    if (i >= n) continue;
#pragma unroll
    for (int g = 0; g < Tiles::kGroups; ++g) {
      const int64_t j = column + g * kApart + 4 * x;
      float roots[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) roots[v] = FastDistance<kNorm>::root(sums[r][4 * g + v], work.p);
      const int64_t at = (b * n + i) * m + j;
      if constexpr (kPlain) {
        store(static_cast<float*>(work.out) + at, roots, j < m, 0, 0);  // a vector is whole or past the end
      } else {
        store_four(work.out, at, roots, m - j, work.packed_out, work.dtype);
      }
    }
  }
}

bool starts_whole(const void* x, int64_t stride, Dtype dtype) {
  const size_t size = dtype == Dtype::kFloat32 ? 4 : 2;
  return stride % 4 == 0 && aligned(x, 4 * size);
}

template <Norm kNorm, int kSize>
cudaError_t launch(const Exact& call) {
  const Batches& batches = call.batches;
  const int64_t tiles_n = ceil_div(batches.n, kSize), tiles_m = ceil_div(batches.m, kSize);
  const int64_t tiles = batches.count() * tiles_n * tiles_m;
  if (tiles > std::numeric_limits<int>::max() || batches.d > kMostCoordinates)
    return cudaErrorInvalidConfiguration;
  Work work{call.x1, call.x2, call.out, batches};
  work.tiles_n = static_cast<int>(tiles_n), work.tiles_m = static_cast<int>(tiles_m);
  work.p = static_cast<float>(call.p);
  work.dtype = call.dtype;
  work.packed1 = starts_whole(call.x1, batches.d, call.dtype);
  work.packed2 = starts_whole(call.x2, batches.d, call.dtype);
  work.packed_out = starts_whole(call.out, batches.m, call.dtype);
  constexpr int kBytes = sizeof(Tile<kSize>);
  const bool plain = call.dtype == Dtype::kFloat32 && work.packed1 && work.packed2 && work.packed_out;
  const auto kernel = plain ? register_kernel<kNorm, kSize, true> : register_kernel<kNorm, kSize, false>;
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) {
    return error;
  }
  kernel<<<static_cast<unsigned>(tiles), kThreads, kBytes, call.stream>>>(work);
  return cudaGetLastError();
}

}  // namespace

cudaError_t cdist_register(const Exact& call, bool large) {
  if (call.batches.count() == 0 || call.batches.n == 0 || call.batches.m == 0) return cudaSuccess;
  return with_fast_norm(call.p, [&](auto norm) {
    constexpr Norm kNorm = decltype(norm)::value;
    return large ? launch<kNorm, 8 * kSide>(call) : launch<kNorm, 4 * kSide>(call);
  });
}

}  // namespace kernels
