// The gradient of the Euclidean distance as a matrix product, without what makes that inexact.
//
// With w = grad / distance, the sum over j of w[j] * (own - other[j]) is own * sum(w) - sum(w[j] * other[j]):
// one multiply-add a term instead of a subtraction too, but it loses digits where points are nearer to each
// other than to the origin. So coordinates are taken relative to the middle of the block's own points, and a
// slice that still holds a pair nearer than kNear of its own point's distance from there is summed through
// differences: slower, and only there.
#include "backward.cuh"

namespace kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocksPerSM = 3;
constexpr int kCoordinates = 64;
constexpr int kPer = 8;         // own points, and coordinates, of a thread: two groups of four along each
constexpr int kApart = 64;      // between the groups of own points
constexpr int kApartK = 32;     // between the groups of coordinates
constexpr float kNear = 0.25f;  // a term's error is at most about 2 / kNear roundings of the gradient
constexpr int kOthers = kThreads / 16;
constexpr int kFlush = 256;  // others after which sums in registers are added to those in shared memory
static_assert(kOwn / kPer * kCoordinates / kPer == kThreads);

struct Room {
  float own[kOwn][kCoordinates];
  float weights[kOthers][kOwn];
  float others[kOthers][kCoordinates], shifted[kOthers][kCoordinates];  // as they are, and relative
  float centre[kCoordinates];
  float near_below[kOwn];  // distances that count as near
  float totals[kOwn];      // of the weights of slices that were taken as products
  float4 sums[kPer * kPer / 4][kThreads];
};

__device__ __forceinline__ void get(float (&values)[kPer], const float* row, int at, int apart) {
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    const float4 four = *reinterpret_cast<const float4*>(row + at + g * apart);
    values[4 * g] = four.x, values[4 * g + 1] = four.y, values[4 * g + 2] = four.z,
               values[4 * g + 3] = four.w;
  }
}

template <bool kOwnIsRows>
__global__ __launch_bounds__(kThreads,
                             kBlocksPerSM) void product_kernel(const __grid_constant__ BackwardWork work) {
  using Loader = Pairs<kOwnIsRows, kThreads>;
  extern __shared__ float4 memory[];
  Room& room = *reinterpret_cast<Room*>(memory);
  const Share share(work, kCoordinates);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int own = 4 * (4 * warp + lane / 8), k = 4 * (lane % 8);

  for (int at = threadIdx.x; at < kOwn * kCoordinates; at += kThreads) {
    const int64_t i = share.own + at / kCoordinates, coordinate = share.k + at % kCoordinates;
    const bool exists = i < work.own_count && coordinate < work.d;
    room.own[at / kCoordinates][at % kCoordinates] =
        exists ? work.own[(share.b * work.own_count + i) * work.d + coordinate] : 0.0f;
  }
  __syncthreads();
  if (threadIdx.x < kCoordinates) {
    float sum = 0;
    const int count = static_cast<int>(min(int64_t{kOwn}, work.own_count - share.own));
    for (int i = 0; i < count; ++i) sum += room.own[i][threadIdx.x];
    room.centre[threadIdx.x] = sum / count;
  }
  __syncthreads();
  float square = 0;
  for (int step = 0; step < kCoordinates; ++step) {
    const int c = (step + threadIdx.x) % kCoordinates;  // each lane in another bank
    const float x = room.own[threadIdx.x][c] - room.centre[c];
    square = fmaf(x, x, square);
  }
  room.near_below[threadIdx.x] = kNear * sqrtf(square);
  room.totals[threadIdx.x] = 0;
#pragma unroll
  for (int at = 0; at < kPer * kPer / 4; ++at) room.sums[at][threadIdx.x] = make_float4(0, 0, 0, 0);
  __syncthreads();

  Loader pairs(work, share);
  Others<kCoordinates, kOthers> others(work, share);
  static_assert(others.kThreads == kThreads);
  float sums[kPer][kPer] = {}, own_totals[kOwnIsRows ? Loader::kTurns : 4] = {};
  const int other_k = 4 * (threadIdx.x % (kCoordinates / 4));
  const auto flush = [&] {
#pragma unroll
    for (int at = 0; at < kPer * kPer / 4; ++at) {
      float* four = &sums[at / 2][at % 2 * 4];
      float4& total = room.sums[at][threadIdx.x];
      total.x += four[0], total.y += four[1], total.z += four[2], total.w += four[3];
      four[0] = four[1] = four[2] = four[3] = 0;
    }
  };
  pairs.load_slice(work);
  float4 other = others.load_slice(work);
  for (int done = 0; done < share.count; done += kOthers) {
    bool near = false;
    float weights[Loader::kTurns][4];
#pragma unroll
    for (int turn = 0; turn < Loader::kTurns; ++turn) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float distance = pairs.distances[turn][v];
        const float below = room.near_below[Loader::own_of(turn) + (kOwnIsRows ? 0 : v)];
        near |= distance < below && distance != 0;
        weights[turn][v] = distance == 0 ? 0.0f : __fdividef(pairs.grads[turn][v], distance);
      }
      Loader::put(room.weights, turn, weights[turn]);
    }
    const float4 centre = *reinterpret_cast<const float4*>(&room.centre[other_k]);
    reinterpret_cast<float4*>(room.others)[threadIdx.x] = other;
    reinterpret_cast<float4*>(room.shifted)[threadIdx.x] =
        make_float4(other.x - centre.x, other.y - centre.y, other.z - centre.z, other.w - centre.w);
    const bool differences = __syncthreads_or(near);
    if (done + kOthers < share.count) {
      pairs.load_slice(work);
      other = others.load_slice(work);
    }
    if (differences) {
#pragma unroll 1
      for (int j = 0; j < kOthers; ++j) {
        float w[kPer], x[kPer];
        get(w, room.weights[j], Loader::place(own, j), kApart);
        get(x, room.others[j], k, kApartK);
#pragma unroll
        for (int r = 0; r < kPer; ++r) {
          asm volatile("" ::: "memory");
          const float* point = room.own[own + r / 4 * kApart + r % 4] + k;
#pragma unroll
          for (int c = 0; c < kPer; ++c) {
            sums[r][c] = fmaf(w[r], point[c / 4 * kApartK + c % 4] - x[c], sums[r][c]);
          }
        }
      }
    } else {
#pragma unroll
      for (int turn = 0; turn < Loader::kTurns; ++turn) {
#pragma unroll
        for (int v = 0; v < 4; ++v) own_totals[kOwnIsRows ? turn : v] += weights[turn][v];
      }
#pragma unroll 2
      for (int j = 0; j < kOthers; ++j) {
        float w[kPer], x[kPer];
        get(w, room.weights[j], Loader::place(own, j), kApart);
        get(x, room.shifted[j], k, kApartK);
#pragma unroll
        for (int r = 0; r < kPer; ++r) {
#pragma unroll
          for (int c = 0; c < kPer; ++c) sums[r][c] = fmaf(-w[r], x[c], sums[r][c]);
        }
      }
    }
    if (done % kFlush == kFlush - kOthers) flush();
    __syncthreads();
  }
  flush();

  // One thread after the other, so that the order of the sum is the same each time.
  for (int sharer = 0; sharer < (kOwnIsRows ? Loader::kLanes : kThreads / 32); ++sharer) {
    if (sharer == (kOwnIsRows ? static_cast<int>(threadIdx.x) % Loader::kLanes : warp)) {
#pragma unroll
      for (int at = 0; at < (kOwnIsRows ? Loader::kTurns : 4); ++at) {
        room.totals[kOwnIsRows ? Loader::own_of(at) : Loader::own_of(0) + at] += own_totals[at];
      }
    }
    __syncthreads();
  }
  float* out = work.out + (share.split * work.batch + share.b) * work.own_count * work.d;
#pragma unroll
  for (int r = 0; r < kPer; ++r) {
    const int row = own + r / 4 * kApart + r % 4;
    if (share.own + row >= work.own_count) continue;
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const int column = k + g * kApartK;
      const int64_t left = work.d - share.k - column;
      const float4 four = room.sums[2 * r + g][threadIdx.x];
      float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float relative = room.own[row][column + v] - room.centre[column + v];
        values[v] = fmaf(room.totals[row], relative, values[v]);
      }
      store(out + (share.own + row) * work.d + share.k + column, values, work.packed_out && left >= 4, 0,
            left);
    }
  }
}

}  // namespace

cudaError_t cdist_backward_product(const Backward& call) {
  const auto kernel = call.own_is_rows ? product_kernel<true> : product_kernel<false>;
  return launch_backward(kernel, call, kCoordinates, kThreads, sizeof(Room));
}

}  // namespace kernels
