// What both gradients of cdist share: which block does what, how weights come in, how parts are added up.
#pragma once

#include <algorithm>

#include "backward.h"
#include "vectors.cuh"

namespace kernels {

constexpr int kOwn = 128;  // points of a block whose gradient it sums

__device__ __forceinline__ void load_any(float (&values)[4], const void* x, int64_t at, int64_t left,
                                         bool packed, Dtype dtype) {
  if (dtype == Dtype::kFloat32) {
    load(values, static_cast<const float*>(x) + at, left, packed);
  } else if (dtype == Dtype::kBfloat16) {
    load(values, static_cast<const __nv_bfloat16*>(x) + at, left, packed);
  } else {
    load(values, static_cast<const __half*>(x) + at, left, packed);
  }
}

// A call as every thread knows it.
struct BackwardWork {
  const void* grad;
  const float *distance, *own, *other;
  float* out;
  int64_t batch, rows, columns, own_count, other_count, d;
  int tiles, chunks, splits;  // of own points, of coordinates, of others
  int64_t others_each;        // of a split
  float p;
  Dtype dtype;
  bool packed;         // whether four neighbours of grad and of distance start at whole vectors
  bool packed_points;  // the same for points
  bool packed_out;     // and for the result
};

// A block's share: own points from `own`, coordinates from `k`, others [first, last) of batch b.
struct Share {
  int64_t b, own, k, first, last, split;

  __device__ Share(const BackwardWork& work, int coordinates) {
    int64_t unit = blockIdx.x;
    own = unit % work.tiles * kOwn, unit /= work.tiles;
    split = unit % work.splits, unit /= work.splits;
    k = unit % work.chunks * coordinates;
    b = unit / work.chunks;
    first = split * work.others_each;
    last = min(first + work.others_each, work.other_count);
  }
};

// Gradients and distances of kOwn x (kThreads / 16) pairs, eight a thread, on their way to shared memory.
template <bool kOwnIsRows, int kThreads>
struct Pairs {
  static constexpr int kOthers = kThreads / 16;
  static constexpr int kLanes = kOthers / 4;  // threads that share a row of pairs, if own points are rows
  static constexpr int kTurns = 2;

  float grads[kTurns][4], distances[kTurns][4];

  // Of the first of the four pairs in a turn: own point in the tile, other in the slice.
  __device__ static int own_of(int turn) {
    return kOwnIsRows ? threadIdx.x / kLanes + turn * (kOwn / kTurns) : 4 * (threadIdx.x % 32);
  }
  __device__ static int other_of(int turn) {
    return kOwnIsRows ? 4 * (threadIdx.x % kLanes) : threadIdx.x / 32 + turn * (kThreads / 32);
  }

  // Where own point `own` lies within the row of other `j` in shared memory: the lanes of a warp meet 32
  // banks.
  __device__ static int place(int own, int j) { return own ^ (j / 4 * (32 / kLanes)); }

  // Pairs that do not exist have gradient and distance 0.
  __device__ __forceinline__ void load_slice(const BackwardWork& work, const Share& share, int64_t first) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t own = share.own + own_of(turn), other = first + other_of(turn);
      const int64_t row = kOwnIsRows ? own : other, column = kOwnIsRows ? other : own;
      const int64_t end = kOwnIsRows ? share.last : work.columns;
      const int64_t left = row < (kOwnIsRows ? work.rows : share.last) ? end - column : 0;
      const int64_t at = (share.b * work.rows + row) * work.columns + column;
      load_any(grads[turn], work.grad, at, left, work.packed, work.dtype);
      load(distances[turn], work.distance + at, left, work.packed);
    }
  }

  // values(v) of the four pairs of a turn -> their places.
  __device__ __forceinline__ static void put(float (*rows)[kOwn], int turn, const float (&values)[4]) {
    const int own = own_of(turn), other = other_of(turn);
    if constexpr (kOwnIsRows) {
#pragma unroll
      for (int v = 0; v < 4; ++v) rows[other + v][place(own, other)] = values[v];
    } else {
      *reinterpret_cast<float4*>(&rows[other][place(own, other)]) =
          make_float4(values[0], values[1], values[2], values[3]);
    }
  }
};

// Four coordinates of others[first + j], for thread j * kCoordinates / 4 + k / 4; 0 past the ends.
template <int kCoordinates>
__device__ __forceinline__ float4 load_other(const BackwardWork& work, const Share& share, int64_t first) {
  const int64_t j = first + threadIdx.x / (kCoordinates / 4);
  const int64_t k = share.k + 4 * (threadIdx.x % (kCoordinates / 4));
  float values[4];
  load(values, work.other + (share.b * work.other_count + j) * work.d + k, j < share.last ? work.d - k : 0,
       work.packed_points);
  return make_float4(values[0], values[1], values[2], values[3]);
}

template <typename Kernel>
cudaError_t launch_backward(Kernel kernel, const Backward& call, int coordinates, int threads,
                            int bytes = 0) {
  BackwardWork work{call.grad, call.distance, call.own, call.other};
  work.out = call.splits == 1 ? call.out : call.partial;
  work.batch = call.batch, work.rows = call.rows, work.columns = call.columns, work.d = call.d;
  work.own_count = call.own_count(), work.other_count = call.other_count();
  const int64_t tiles = ceil_div(work.own_count, kOwn), chunks = ceil_div(call.d, coordinates);
  const int64_t blocks = tiles * chunks * call.splits * call.batch;
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  work.tiles = static_cast<int>(tiles), work.chunks = static_cast<int>(chunks);
  work.splits = static_cast<int>(call.splits);
  work.others_each = ceil_div(ceil_div(work.other_count, call.splits), 16) * 16;
  work.p = static_cast<float>(call.p);
  work.dtype = call.dtype;
  const size_t size = call.dtype == Dtype::kFloat32 ? 4 : 2;
  work.packed = call.columns % 4 == 0 && aligned(call.grad, 4 * size) && aligned(call.distance, 16);
  work.packed_points = call.d % 4 == 0 && aligned(call.own, 16) && aligned(call.other, 16);
  work.packed_out = call.d % 4 == 0 && aligned(work.out, 16);
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
    return error;
  }
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, call.stream>>>(work);
  return cudaGetLastError();
}

}  // namespace kernels
