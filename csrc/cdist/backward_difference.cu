// The gradient of cdist for every p: each term from the difference of two coordinates.
#include "backward.cuh"
#include "fast_norm.cuh"

namespace kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSM = 2;
constexpr int kPerOwn = 4;      // own points of a thread
constexpr int kTurnsOfFew = 4;  // of a slice of pairs: whole lines of 128 bytes where own points are rows
constexpr int kNeighbours = 8;  // threads that share those: along coordinates first, then along others

// log2(size * inverse), for a product of 0 to a little above 1. The card's own is off by 2^-22 near 1, where
// the largest terms are, and p - 1 multiplies that. The polynomial is off by 2^-23 of the logarithm from 0.7
// to 1.02 (a least-squares fit of log2(1 + f) / f), and f is rounded once.
__device__ __forceinline__ float log2_of_ratio(float size, float inverse) {
  const float ratio = size * inverse, f = fmaf(size, inverse, -1.0f);
  float quotient = 0.5435128808f;
  for (float next :
       {-0.0896075517f, 0.3174828291f, -0.3582158983f, 0.4809665382f, -0.7213482261f, 1.4426950216f}) {
    quotient = fmaf(quotient, f, next);
  }
  return ratio < 0.7f ? __log2f(ratio) : f * quotient;
}

// A term is grad * sign(x) * (|x| / distance)^(p - 1) with x a difference of coordinates; what of it depends
// on the pair alone is worked out once, as a weight and, but for p = 1 and 2, one more value.
template <Norm kNorm>
struct Slope {
  static constexpr bool kTwoValues = kNorm != Norm::kOne && kNorm != Norm::kTwo;

  __device__ __forceinline__ static float weight(float grad, float distance, float p) {
    if constexpr (kNorm == Norm::kTwo) return weight_of(grad, distance);
    if constexpr (kNorm == Norm::kThree || kNorm == Norm::kThreeHalves) {
      return distance == 0 ? 0.0f : grad;  // not 0 times what may be infinite
    }
    if constexpr (kNorm == Norm::kAny) {  // what second() is off by, to the power of p - 1
      const float off = fmaf(-distance, second(distance), 1.0f);
      return fabsf(off) < 1 ? grad * fmaf(p - 1, off, 1.0f) : grad;
    }
    return grad;
  }

  __device__ __forceinline__ static float second(float distance) {
    if constexpr (kNorm == Norm::kInfinity) return distance;
    if constexpr (kNorm == Norm::kAny) return distance == 0 ? 0.0f : __frcp_rn(distance);
    return distance == 0 ? 0.0f : __fdividef(1.0f, distance);
  }

  __device__ __forceinline__ static float add(float sum, float difference, float weight, float second,
                                              float p) {
    const float size = fabsf(difference);
    if constexpr (kNorm == Norm::kTwo) {
      return fmaf(weight, difference, sum);
    } else if constexpr (kNorm == Norm::kOne) {
      return size > 0 ? sum + weight * copysignf(1.0f, difference) : sum;  // NaN adds nothing
    } else if constexpr (kNorm == Norm::kInfinity) {
      return size == second && size != 0 ? sum + weight * copysignf(1.0f, difference) : sum;
    } else if constexpr (kNorm == Norm::kThree) {
      const float ratio = difference * second;
      return fmaf(weight, ratio * fabsf(ratio), sum);
    } else if constexpr (kNorm == Norm::kThreeHalves) {
      return fmaf(weight, copysignf(fast_sqrt(size * second), difference), sum);
    } else {
      const float power = exp2f((p - 1) * log2_of_ratio(size, second));
      return size * second == 0 ? sum : fmaf(weight, copysignf(power, difference), sum);
    }
  }
};

template <Norm kNorm, bool kOwnIsRows, int kCoordinates>
__global__ __launch_bounds__(kThreads,
                             kBlocksPerSM) void difference_kernel(const __grid_constant__ BackwardWork work) {
  using Loader = Pairs<kOwnIsRows, kThreads, kCoordinates <= 16 ? kTurnsOfFew : 2>;
  using Term = Slope<kNorm>;
  constexpr int kOthers = Loader::kOthers;
  constexpr int kPerK = kCoordinates < 8 ? kCoordinates : 8;  // coordinates of a thread, in groups of four
  constexpr int kAlong = kCoordinates / kPerK;                // threads along coordinates
  constexpr int kStride = kNeighbours / kAlong;               // threads along others
  constexpr int kApart = kCoordinates / (kPerK / 4);          // between the groups
  static_assert(kAlong * kPerK == kCoordinates && kAlong * kStride == kNeighbours);
  struct Slice {
    float weights[kOthers][kOwn], seconds[Term::kTwoValues ? kOthers : 1][kOwn];
    float others[kOthers][kCoordinates];
  };
  __shared__ union Room {
    Slice slice;
    float sums[kStride][kOwn][kCoordinates];
  } room;
  Slice& slice = room.slice;

  const Share share(work, kCoordinates, kOwn);
  const int along = threadIdx.x % kAlong, start = threadIdx.x / kAlong % kStride;
  const int own = threadIdx.x / kNeighbours * kPerOwn, k = 4 * along;
  const bool brings_other = threadIdx.x < Others<kCoordinates, kOthers>::kThreads;

  float points[kPerOwn][kPerK], sums[kPerOwn][kPerK] = {};
#pragma unroll
  for (int r = 0; r < kPerOwn; ++r) {
#pragma unroll
    for (int c = 0; c < kPerK; ++c) {
      const int64_t i = share.own + own + r, at = share.k + k + c / 4 * kApart + c % 4;
      points[r][c] =
          i < work.own_count && at < work.d ? work.own[(share.b * work.own_count + i) * work.d + at] : 0.0f;
    }
  }

  Loader pairs(work, share);
  Others<kCoordinates, kOthers> others(work, share);
  float4 other{};
  pairs.load_slice(work);
  if (brings_other) other = others.load_slice(work);
  for (int left = share.count; left > 0; left -= kOthers) {
#pragma unroll
    for (int turn = 0; turn < Loader::kTurns; ++turn) {
      float weights[4], seconds[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        weights[v] = Term::weight(pairs.grads[turn][v], pairs.distances[turn][v], work.p);
        seconds[v] = Term::second(pairs.distances[turn][v]);
      }
      Loader::put(slice.weights, turn, weights);
      if constexpr (Term::kTwoValues) Loader::put(slice.seconds, turn, seconds);
    }
    if (brings_other) reinterpret_cast<float4*>(slice.others)[threadIdx.x] = other;
    __syncthreads();
    if (left > kOthers) {
      pairs.load_slice(work);
      if (brings_other) other = others.load_slice(work);
    }
#pragma unroll 1  // more takes registers that are not there
    for (int step = 0; step < kOthers; step += kStride) {
      const int j = step + start, place = Loader::place(own, j);
      const float4 weight = *reinterpret_cast<const float4*>(&slice.weights[j][place]);
      const float weights[4] = {weight.x, weight.y, weight.z, weight.w};
      float seconds[4] = {};
      if constexpr (Term::kTwoValues) {
        const float4 second = *reinterpret_cast<const float4*>(&slice.seconds[j][place]);
        seconds[0] = second.x, seconds[1] = second.y, seconds[2] = second.z, seconds[3] = second.w;
      }
#pragma unroll
      for (int g = 0; g < kPerK / 4; ++g) {
        const float4 four = *reinterpret_cast<const float4*>(&slice.others[j][k + g * kApart]);
        const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int r = 0; r < kPerOwn; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            float& sum = sums[r][4 * g + c];
            sum = Term::add(sum, points[r][4 * g + c] - values[c], weights[r], seconds[r], work.p);
          }
        }
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int r = 0; r < kPerOwn; ++r) {
#pragma unroll
    for (int c = 0; c < kPerK; ++c) room.sums[start][own + r][k + c / 4 * kApart + c % 4] = sums[r][c];
  }
  __syncthreads();
  float* out = work.out + (share.split * work.batch + share.b) * work.own_count * work.d;
  for (int at = threadIdx.x; at < kOwn * kCoordinates; at += kThreads) {
    const int64_t i = share.own + at / kCoordinates, coordinate = share.k + at % kCoordinates;
    if (i >= work.own_count || coordinate >= work.d) continue;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kStride; ++s) sum += room.sums[s][at / kCoordinates][at % kCoordinates];
    out[i * work.d + coordinate] = sum;
  }
}

__global__ __launch_bounds__(kThreads) void add_kernel(const float* partial, float* out, int64_t count,
                                                       int64_t splits) {
  const int64_t i = thread_index();
  if (i >= count) return;
  float sum = 0;
  for (int64_t s = 0; s < splits; ++s) sum += partial[s * count + i];
  out[i] = sum;
}

template <Norm kNorm, int kCoordinates>
cudaError_t launch(const Backward& call) {
  const BackwardWork work = work_of(call, kCoordinates, kOwn, 32);
  if (work.blocks > kMostBlocks) return cudaErrorInvalidConfiguration;
  const auto kernel = call.own_is_rows ? difference_kernel<kNorm, true, kCoordinates>
                                       : difference_kernel<kNorm, false, kCoordinates>;
  kernel<<<static_cast<unsigned>(work.blocks), kThreads, 0, call.stream>>>(work);
  return cudaGetLastError();
}

}  // namespace

cudaError_t cdist_backward_difference(const Backward& call) {
  const cudaError_t error = with_fast_norm(call.p, [&](auto norm) {
    constexpr Norm kNorm = decltype(norm)::value;
    if constexpr (kNorm == Norm::kZero) {
      return cudaErrorInvalidValue;
    } else {
      if (call.d <= 4) return launch<kNorm, 4>(call);
      if (call.d <= 16) return launch<kNorm, 16>(call);
      return launch<kNorm, 64>(call);
    }
  });
  return error == cudaSuccess ? add_partials(call) : error;
}

int64_t difference_splits(const Backward& call) {
  const int64_t others = call.other_count();
  const int64_t blocks = ceil_div(call.own_count(), kOwn) * ceil_div(call.d, 64) * call.batch;
  const int64_t filling = std::min(ceil_div(int64_t{4} * call.device.processors, blocks),
                                   ceil_div(others, std::max<int64_t>(64, call.d)));
  return std::max({int64_t{1}, ceil_div(others, 512), filling});
}

cudaError_t add_partials(const Backward& call) {
  if (call.splits == 1) return cudaSuccess;
  const int64_t count = call.batch * call.own_count() * call.d;
  add_kernel<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0, call.stream>>>(
      call.partial, call.out, count, call.splits);
  return cudaGetLastError();
}

}  // namespace kernels
