// What both gradients of cdist share: which block does what, how weights come in, how parts are added up.
#pragma once

#include <algorithm>

#include "backward.h"
#include "vectors.cuh"

namespace kernels {

constexpr int64_t kMostBlocks = 0x7fffffff;
constexpr int kOwn = 128;  // points of a block whose gradient it sums, where it goes by differences

// 1 / distance for p = 2, to 1 ulp. Neither the distance, which is the root of a float, nor this can be a
// denormal, for which a division would take four more instructions. Infinite where the distance is 0.
__device__ __forceinline__ float reciprocal(float distance) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(distance));
  return inverse;
}

// The weight of a pair's difference for p = 2.
__device__ __forceinline__ float weight_of(float grad, float distance) {
  return distance == 0 ? 0.0f : grad * reciprocal(distance);
}

__device__ __forceinline__ void load_any(float (&values)[4], const void* x, int64_t at, int left, bool packed,
                                         Dtype dtype) {
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
  int64_t blocks;
  int64_t others_each;  // of a split
  float p;
  Dtype dtype;
  bool packed;         // whether four neighbours of grad and of distance start at whole vectors
  bool packed_points;  // the same for points
};

// A block's share: own points from `own`, coordinates from `k`, `count` others from `first`, of batch b.
struct Share {
  int64_t b, own, k, first, split;
  int count;

  __device__ Share(const BackwardWork& work, int coordinates, int own_points) {
    int64_t unit = blockIdx.x;
    k = unit % work.chunks * coordinates, unit /= work.chunks;  // first: they read the same pairs
    own = unit % work.tiles * own_points, unit /= work.tiles;
    split = unit % work.splits;
    b = unit / work.splits;
    first = split * work.others_each;
    count = static_cast<int>(max(int64_t{0}, min(work.others_each, work.other_count - first)));
  }
};

// Gradients and distances of kOwn x kOthers pairs, four a thread and turn, on their way to shared memory.
template <bool kOwnIsRows, int kThreads, int kTurnsOfSlice>
struct Pairs {
  static constexpr int kTurns = kTurnsOfSlice, kOthers = 4 * kThreads * kTurns / kOwn;
  static constexpr int kLanes = kOthers / 4;  // threads that share a row of pairs, if own points are rows

  float grads[kTurns][4], distances[kTurns][4];
  int64_t at;                 // of the first pair in grad and distance
  int own_left, others_left;  // points from the first of the tile, others from the first of the slice

  __device__ Pairs(const BackwardWork& work, const Share& share) {
    const int64_t own = share.own + own_of(0), other = share.first + other_of(0);
    const int64_t row = kOwnIsRows ? own : other, column = kOwnIsRows ? other : own;
    at = (share.b * work.rows + row) * work.columns + column;
    own_left = static_cast<int>(min(int64_t{kOwn}, work.own_count - share.own));
    others_left = share.count;
  }

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

  // The next slice. Pairs that do not exist have gradient and distance 0.
  __device__ __forceinline__ void load_slice(const BackwardWork& work) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int own = own_left - own_of(turn), others = others_left - other_of(turn);
      const int left = kOwnIsRows ? (own > 0 ? others : 0) : (others > 0 ? own : 0);
      const int64_t here = at + turn * (kOwnIsRows ? kOwn / kTurns : kThreads / 32) * work.columns;
      load_any(grads[turn], work.grad, here, left, work.packed, work.dtype);
      load(distances[turn], work.distance + here, left, work.packed);
    }
    at += kOthers * (kOwnIsRows ? 1 : work.columns);
    others_left -= kOthers;
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

// Four coordinates of one other of each slice, for thread j * kCoordinates / 4 + k / 4; 0 past the ends.
template <int kCoordinates, int kOthers>
struct Others {
  static constexpr int kThreads = kOthers * kCoordinates / 4;  // that bring any

  const float* from;
  int coordinates_left, others_left;

  __device__ Others(const BackwardWork& work, const Share& share) {
    const int j = threadIdx.x / (kCoordinates / 4), k = 4 * (threadIdx.x % (kCoordinates / 4));
    from = work.other + (share.b * work.other_count + share.first + j) * work.d + share.k + k;
    coordinates_left = static_cast<int>(min(int64_t{kCoordinates}, work.d - share.k)) - k;
    others_left = share.count - j;
  }

  __device__ __forceinline__ float4 load_slice(const BackwardWork& work) {
    float values[4];
    load(values, from, others_left > 0 ? coordinates_left : 0, work.packed_points);
    from += kOthers * work.d;
    others_left -= kOthers;
    return make_float4(values[0], values[1], values[2], values[3]);
  }
};

// out[i] = sum over s of partial[s, i], in order, so that the result is the same each time.
cudaError_t add_partials(const Backward& call);

// Whether four neighbours of grad and of distance start at whole vectors.
inline bool is_packed(const Backward& call) {
  const size_t size = call.dtype == Dtype::kFloat32 ? 4 : 2;
  return call.columns % 4 == 0 && aligned(call.grad, 4 * size) && aligned(call.distance, 16);
}

// What the threads of blocks with `own_points` own points and `coordinates` coordinates have to know; a split
// takes whole multiples of `others`.
inline BackwardWork work_of(const Backward& call, int coordinates, int own_points, int64_t others) {
  BackwardWork work{call.grad, call.distance, call.own, call.other};
  work.out = call.splits == 1 ? call.out : call.partial;
  work.batch = call.batch, work.rows = call.rows, work.columns = call.columns, work.d = call.d;
  work.own_count = call.own_count(), work.other_count = call.other_count();
  const int64_t tiles = ceil_div(work.own_count, own_points), chunks = ceil_div(call.d, coordinates);
  work.blocks = tiles * chunks * call.splits * call.batch;
  work.tiles = static_cast<int>(tiles), work.chunks = static_cast<int>(chunks);
  work.splits = static_cast<int>(call.splits);
  work.others_each = ceil_div(ceil_div(work.other_count, call.splits), others) * others;
  work.p = static_cast<float>(call.p);
  work.dtype = call.dtype;
  work.packed = is_packed(call);
  work.packed_points = call.d % 4 == 0 && aligned(call.own, 16) && aligned(call.other, 16);
  return work;
}

}  // namespace kernels
