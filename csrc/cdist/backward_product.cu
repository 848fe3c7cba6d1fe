// The gradient of the Euclidean distance as a matrix product on tensor cores, without what makes that
// inexact.
//
// With w = grad / distance, the sum over j of w[j] * (own - other[j]) is own * sum(w) - sum(w[j] * other[j]).
// Both factors are split into two TF32 numbers, of whose products three are taken, which keeps 22 bits. It
// still loses digits where points are nearer to each other than to the origin: so coordinates are taken
// relative to a common centre, and where a pair is nearer than kNear of its own point's distance from there,
// a warp's half step is summed through differences: slower, and only there.
//
// Two such passes read grad and distances once each, which is what they are bound by. A warp has 32 own
// points and goes along the others. Pairs come in by asynchronous copies, two steps ahead.
#include <limits>

#include "backward_near.cuh"

namespace kernels {
namespace {

constexpr float kNear = 0.25f;  // a term's error is at most about 2 / kNear roundings of the gradient
constexpr int kTiles = kCoordinates / 16;
constexpr int64_t kMostSplits = 64;  // whose parts are of the order of the inputs

// Warps of a block and steps of pairs that are on their way or at work, for a card's shared memory.
template <int kWarpsOfBlock, int kStepsThere>
struct Shape {
  static constexpr int kWarps = kWarpsOfBlock, kSteps = kStepsThere, kOwnPoints = kOwnOfWarp * kWarps;
  static constexpr bool kAhead = kSteps > 2;  // weights are made ready while those before are multiplied
};

constexpr int kVectors = 8;                   // of four pairs, in a row of a warp's
using PairsOfWarp = float4[2][32][kVectors];  // [grad or distance][row of grad][place]

template <typename S>
struct Room {
  PairsOfWarp pairs[S::kSteps][S::kWarps];
  float4 pieces[2][kParts];
};

struct ProductWork {
  BackwardWork all;
  const float* centre;
  const float4* pieces;
  uint8_t* left_out;  // as near_kernel reads it
  int64_t steps;
};

template <int kKeep>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kKeep) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// 16 bytes; zeros where `exists` does not hold.
__device__ __forceinline__ void copy_async(float4* to, const void* from, bool exists) {
  constexpr int kBytes = 16;
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(exists ? kBytes : 0));
}

// Lane (g, t) of a warp, g = lane / 4: it has four own points, and four others of each half step.
template <bool kOwnIsRows>
__device__ __forceinline__ int own_of(int q, int g) {
  return kOwnIsRows ? 8 * q + g : 4 * g + q;
}

// Where vector `chunk` of a row of pairs lies in the row's place in shared memory: eight lanes that copy a
// row meet 32 banks, and so do eight that read, of two rows or of four, what their products take.
__device__ __forceinline__ int place(int row, int chunk) { return chunk ^ (row % 2 * 4) ^ (row / 4 % 4 * 2); }

// Gradients and distances of a warp's 32 x 32 pairs on their way to shared memory, as rows of grad. Eight
// neighbours copy 128 bytes of a row: less in one piece, and memory reads at half its rate.
template <bool kOwnIsRows, bool kPlain>
struct PairCopies {
  static constexpr int kBetween = 32 / kVectors;  // rows that are copied at once

  int64_t at;                 // of this lane's first pair in grad and distance
  int row, chunk;             // of it, in the tile
  int own_left, others_left;  // from the tile's first

  __device__ PairCopies(const BackwardWork& work, const Share& share, int64_t own, int lane)
      : row(lane / kVectors), chunk(lane % kVectors) {
    const int64_t first_row = kOwnIsRows ? own : share.first, column = kOwnIsRows ? share.first : own;
    at = (share.b * work.rows + first_row + row) * work.columns + column + 4 * chunk;
    own_left = static_cast<int>(max(int64_t{0}, min(int64_t{kOwnOfWarp}, work.own_count - own)));
    others_left = share.count;
  }

  __device__ __forceinline__ void next(PairsOfWarp& to, const BackwardWork& work) {
    const int rows = (kOwnIsRows ? own_left : others_left) - row;
    const int columns = (kOwnIsRows ? others_left : own_left) - 4 * chunk;
    int64_t here = at;
#pragma unroll
    for (int i = 0; i < 32; i += kBetween, here += kBetween * work.columns) {
      const int left = i < rows ? columns : 0;
      float4 &grad = to[0][row + i][place(row + i, chunk)], &distance = to[1][row + i][place(row + i, chunk)];
      if constexpr (kPlain) {  // a vector is whole or past the end
        copy_async(&grad, static_cast<const float*>(work.grad) + here, left > 0);
        copy_async(&distance, work.distance + here, left > 0);
      } else {
        float values[4];
        load_any(values, work.grad, left > 0 ? here : 0, left, work.packed, work.dtype);
        grad = make_float4(values[0], values[1], values[2], values[3]);
        load(values, work.distance + (left > 0 ? here : 0), left, work.packed);
        distance = make_float4(values[0], values[1], values[2], values[3]);
      }
    }
    at += kOwnIsRows ? kStep : kStep * work.columns;
    others_left -= kStep;
  }
};

// Sums of a warp: [coordinates 16 * tile + g, and 8 more][own points of tile q] as multiply_tf32 has them.
using Sums = float[kTiles][4][4];

// sums += the weighted pieces of half a step; small terms first.
__device__ __forceinline__ void add_products(Sums& sums, const float (&weights)[4][4], const float4* pieces,
                                             int half, int lane) {
#pragma unroll
  for (int product = 0; product < 2; ++product) {
    uint32_t hi[4][2], lo[4][2];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const Split split(weights[q][2 * product + v]);
        hi[q][v] = split.hi, lo[q][v] = split.lo;
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t parts[2][4];
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        const float4 four = pieces[Place::index(half, product, tile, piece, lane)];
        parts[piece][0] = __float_as_uint(four.x), parts[piece][1] = __float_as_uint(four.y);
        parts[piece][2] = __float_as_uint(four.z), parts[piece][3] = __float_as_uint(four.w);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) multiply_tf32(sums[tile][q], parts[1], hi[q][0], hi[q][1]);
#pragma unroll
      for (int q = 0; q < 4; ++q) multiply_tf32(sums[tile][q], parts[0], lo[q][0], lo[q][1]);
#pragma unroll
      for (int q = 0; q < 4; ++q) multiply_tf32(sums[tile][q], parts[0], hi[q][0], hi[q][1]);
    }
  }
}

template <typename S, bool kOwnIsRows, bool kPlain>
__global__ __launch_bounds__(32 * S::kWarps,
                             1) void product_kernel(const __grid_constant__ ProductWork given) {
  const BackwardWork& work = given.all;
  extern __shared__ float4 memory[];
  Room<S>& room = *reinterpret_cast<Room<S>*>(memory);
  const Share share(work, kCoordinates, S::kOwnPoints);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int64_t first_own = share.own + kOwnOfWarp * warp;
  const float* centre = given.centre + share.b * work.chunks * kCoordinates + share.k;
  const float* own = work.own + (share.b * work.own_count + first_own) * work.d + share.k;
  const int own_left = static_cast<int>(min(int64_t{kOwnOfWarp}, work.own_count - first_own));
  const int coordinates = static_cast<int>(min(int64_t{kCoordinates}, work.d - share.k));
  const int64_t own_warps = work.tiles * S::kWarps, chunk = share.k / kCoordinates;
  uint16_t* left_out = reinterpret_cast<uint16_t*>(given.left_out) + share.first / kStep +
                       ((share.b * work.chunks + chunk) * own_warps + first_own / kOwnOfWarp) * given.steps;

  PairCopies<kOwnIsRows, kPlain> pairs(work, share, first_own, lane);
  const float4* parts =
      given.pieces + ((share.b * work.chunks + chunk) * given.steps + share.first / kStep) * kParts;
  const int steps = (share.count + kStep - 1) / kStep;
  const auto bring_pieces = [&](int step) {
    if (step < steps) {
#pragma unroll
      for (int i = threadIdx.x; i < kParts; i += 32 * S::kWarps) {
        copy_async(&room.pieces[step % 2][i], parts + int64_t{kParts} * step + i, true);
      }
    }
    commit_copies();
  };
  const auto bring_pairs = [&](int step) {
    if (step < steps) pairs.next(room.pairs[step % S::kSteps][warp], work);
    commit_copies();
  };
  for (int step = 0; step < S::kSteps - 1; ++step) {
    if (step == S::kSteps - 2) bring_pieces(0);
    bring_pairs(step);
  }

  float near_above[4];  // reciprocals of distances that count as near
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    float square = 0;
    for (int c = 16 * t; c < 16 * t + 16; ++c) {
      const int point = own_of<kOwnIsRows>(q, g);
      const float x = c < coordinates && point < own_left ? own[point * work.d + c] - centre[c] : 0.0f;
      square = fmaf(x, x, square);
    }
    square += __shfl_xor_sync(~0u, square, 1);
    square += __shfl_xor_sync(~0u, square, 2);
    near_above[q] = 1 / (kNear * sqrtf(square));
  }

  // Weights of half a step; returns whether one of this lane's pairs is near.
  const auto weigh = [&](int step, int half, float (&weights)[4][4]) {
    const auto& here = room.pairs[step % S::kSteps][warp];
    float nearest[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = kOwnIsRows ? 8 * i + g : 16 * half + 4 * t + i;
      const int vector = place(row, kOwnIsRows ? 4 * half + t : g);
      const float4 grad = here[0][row][vector], distance = here[1][row][vector];
      const float grads[4] = {grad.x, grad.y, grad.z, grad.w};
      const float distances[4] = {distance.x, distance.y, distance.z, distance.w};
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int q = kOwnIsRows ? i : v, s = kOwnIsRows ? v : i;
        // No pair is near at distance 0: it adds nothing.
        const float inverse = distances[v] == 0 ? 0.0f : reciprocal(distances[v]);
        weights[q][s] = distances[v] == 0 ? 0.0f : grads[v] * inverse;
        nearest[q] = fmaxf(nearest[q], inverse);
      }
    }
    return nearest[0] > near_above[0] || nearest[1] > near_above[1] || nearest[2] > near_above[2] ||
           nearest[3] > near_above[3];
  };

  Sums sums = {};
  float totals[4] = {};  // of the weights that were taken as products
  float weights[4][4];
  bool near = false;
  if constexpr (S::kAhead) {
    wait_for_copies<0>();
    __syncthreads();
    near = weigh(0, 0, weights);
  }
  for (int step = 0; step < steps; ++step) {
    // The last group may be of pairs that are not needed yet, never of the pieces of this step.
    wait_for_copies<S::kAhead ? 0 : S::kSteps - 2>();
    __syncthreads();  // all have brought these pieces and are done with those before
    bring_pieces(step + 1);
    bring_pairs(step + S::kSteps - 1);
    int halves = 0;  // a byte each: whether it is left out
    // Of this step alone: the tensor core truncates whenever it adds, which long sums would show.
    Sums recent = {};
    float recent_totals[4] = {};
#pragma unroll 1  // more takes registers that are not there
    for (int half = 0; half < 2; ++half) {
      if constexpr (!S::kAhead) near = weigh(step, half, weights);
      if (__any_sync(~0u, near)) {
        halves |= 1 << 8 * half;
#pragma unroll
        for (int at = 0; at < 16; ++at) weights[at / 4][at % 4] = 0;
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        recent_totals[q] += (weights[q][0] + weights[q][1]) + (weights[q][2] + weights[q][3]);
      }
      float next[4][4];  // under the products, on other units; beyond the last step nothing of it is used
      if constexpr (S::kAhead) near = weigh(step + half, 1 - half, next);
      add_products(recent, weights, room.pieces[step % 2], half, lane);
      if constexpr (S::kAhead) {
#pragma unroll
        for (int at = 0; at < 16; ++at) weights[at / 4][at % 4] = next[at / 4][at % 4];
      }
    }
    if (lane == 0) left_out[step] = static_cast<uint16_t>(halves);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      totals[q] += recent_totals[q];
#pragma unroll
      for (int at = 0; at < kTiles * 4; ++at) sums[at / 4][q][at % 4] += recent[at / 4][q][at % 4];
    }
  }

  float* out = work.out + (share.split * work.batch + share.b) * work.own_count * work.d +
               first_own * work.d + share.k;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    float total = totals[q];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float weight = __shfl_sync(~0u, total, (2 * t + e) * 4);
      const int point = own_of<kOwnIsRows>(q, 2 * t + e);
#pragma unroll
      for (int c = 0; c < 2 * kTiles; ++c) {
        const int coordinate = 8 * c + g;
        if (point >= own_left || coordinate >= coordinates) continue;
        const float relative = own[point * work.d + coordinate] - centre[coordinate];
        out[point * work.d + coordinate] = fmaf(weight, relative, -sums[c / 2][q][c % 2 * 2 + e]);
      }
    }
  }
}

int64_t steps_of(const Backward& call) { return ceil_div(call.other_count(), kStep); }
int64_t chunks_of(const Backward& call) { return ceil_div(call.d, kCoordinates); }

template <typename S>
int64_t own_warps_of(const Backward& call) {
  return ceil_div(call.own_count(), S::kOwnPoints) * S::kWarps;
}

// Calls run(Shape, whether the inputs are float32 in whole vectors) with the largest shape that the device's
// shared memory holds.
template <typename Run>
auto with_shape(const Backward& call, Run&& run) {
  const auto holds = [&](size_t bytes) { return call.device.shared_bytes >= static_cast<int64_t>(bytes); };
  const bool plain = call.dtype == Dtype::kFloat32 && is_packed(call);
  if (plain && holds(sizeof(Room<Shape<8, 3>>))) return run(Shape<8, 3>{}, std::true_type{});
  if (plain && holds(sizeof(Room<Shape<8, 2>>))) return run(Shape<8, 2>{}, std::true_type{});
  if (plain) return run(Shape<4, 2>{}, std::true_type{});
  return run(Shape<4, 2>{}, std::false_type{});
}

template <typename S>
ProductWork product_work_of(const Backward& call) {
  const int64_t floats = 4 * call.batch * chunks_of(call) * steps_of(call) * kParts;
  ProductWork work{work_of(call, kCoordinates, S::kOwnPoints, kStep)};
  work.pieces = reinterpret_cast<float4*>(call.scratch);
  work.centre = call.scratch + floats;
  work.left_out =
      reinterpret_cast<uint8_t*>(call.scratch + floats + call.batch * chunks_of(call) * kCoordinates);
  work.steps = steps_of(call);
  return work;
}

template <typename S, bool kPlain>
cudaError_t launch(const Backward& call) {
  const ProductWork work = product_work_of<S>(call);
  const int64_t parts = call.batch * chunks_of(call), units = parts * work.steps * (kParts / 2);
  if (work.all.blocks > kMostBlocks || ceil_div(units, 256) > kMostBlocks)
    return cudaErrorInvalidConfiguration;
  float* centre = const_cast<float*>(work.centre);
  float4* pieces = const_cast<float4*>(work.pieces);
  centre_kernel<<<static_cast<unsigned>(parts), kCoordinates, 0, call.stream>>>(work.all, centre);
  split_kernel<<<static_cast<unsigned>(ceil_div(units, 256)), 256, 0, call.stream>>>(work.all, centre, pieces,
                                                                                     work.steps);
  const auto kernel = call.own_is_rows ? product_kernel<S, true, kPlain> : product_kernel<S, false, kPlain>;
  const int bytes = sizeof(Room<S>);
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
    return error;
  }
  kernel<<<static_cast<unsigned>(work.all.blocks), 32 * S::kWarps, bytes, call.stream>>>(work);
  if (cudaError_t error = cudaGetLastError()) return error;
  if (cudaError_t error = add_partials(call)) return error;
  const int64_t own_warps = own_warps_of<S>(call);
  const auto near = call.own_is_rows ? near_kernel<true> : near_kernel<false>;
  near<<<static_cast<unsigned>(parts * own_warps), kNearThreads, 0, call.stream>>>(
      work.all, work.left_out, call.out, own_warps, 2 * work.steps);
  return cudaGetLastError();
}

}  // namespace

int64_t product_scratch(const Backward& call) {
  return with_shape(call, [&](auto shape, auto) {
    const int64_t flags = ceil_div(own_warps_of<decltype(shape)>(call) * 2 * steps_of(call), 4);
    return call.batch * chunks_of(call) * (4 * steps_of(call) * kParts + kCoordinates + flags);
  });
}

// The number of parts whose blocks take the fewest steps one after the other; each costs about what four
// steps do.
int64_t product_splits(const Backward& call) {
  return with_shape(call, [&](auto shape, auto) {
    const int64_t steps = steps_of(call);
    const int64_t blocks =
        own_warps_of<decltype(shape)>(call) / decltype(shape)::kWarps * chunks_of(call) * call.batch;
    int64_t best = 1, least = std::numeric_limits<int64_t>::max();
    for (int64_t splits = 1; splits <= std::min(steps, kMostSplits); ++splits) {
      const int64_t taken = ceil_div(blocks * splits, call.device.processors) * (ceil_div(steps, splits) + 4);
      if (taken < least) least = taken, best = splits;
    }
    return best;
  });
}

cudaError_t cdist_backward_product(const Backward& call) {
  return with_shape(
      call, [&](auto shape, auto plain) { return launch<decltype(shape), decltype(plain)::value>(call); });
}

}  // namespace kernels
