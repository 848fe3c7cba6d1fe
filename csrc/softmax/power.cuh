// The exponential of softmax and the pair (largest, sum) that describes a part of a row. No torch here.
#pragma once

#include <cmath>

#include "../common/device.cuh"

namespace kernels::softmax {

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kWarp = 32;

__device__ __forceinline__ float exp2_approx(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}

// exp(x - largest), up to a power of two that is the same for all x: 2^(x log2(e) - whole). Since `whole` is
// a whole number, x - largest is never rounded (one fused multiply-add of the unrounded product), and going
// from one `whole` to another is exact. What is rounded is the exponent, and it matters by its size, so the
// largest gets about 2^7 and not 1: exponents of -8 to 8 then span e^10. From 2^20 on (masks of -3e38, say) a
// whole exponent is too coarse: there the largest is subtracted first, as the definition does.
struct Power {
  float base, whole;

  Power() = default;
  // Where nothing but -inf was seen any finite shift gives the right zeros.
  __device__ explicit Power(float largest) {
    const float finite = largest == -INFINITY ? 0 : largest;
    base = fabsf(finite) < 1048576.0f ? 0 : finite;
    whole = rintf((finite - base) * kLog2e) - 7;
  }
  __device__ float operator()(float x) const { return exp2_approx(fmaf(x - base, kLog2e, -whole)); }
  // Factor from what was computed under `other` to this.
  __device__ float from(const Power& other) const {
    return exp2_approx(fmaf(other.base - base, kLog2e, other.whole - whole));
  }

 private:
  static constexpr float kLog2e = 1.44269502f;
};

// What a part of a row contributes: its largest element and the sum of Power(largest). A part without
// elements is {-inf, 0}. Sent as one word of 64 bits.
struct alignas(8) Partial {
  float largest, sum;
};

// The sum of `partial` under the largest element of the whole.
__device__ __forceinline__ float rescaled(const Partial& partial, float largest) {
  // Of a part that saw only -inf (its sum is 0, or NaN) the factor would be inf under a largest of -3e38.
  if (partial.largest == -INFINITY) return partial.sum;
  return partial.sum * Power(largest).from(Power(partial.largest));
}

// Over groups of kLanes lanes, in every lane. NaN is ignored.
template <int kLanes>
__device__ __forceinline__ float lanes_max(float value) {
  if constexpr (kLanes == kWarp) {  // integers have an instruction: floats in an order that integers share
    const int bits = __float_as_int(value);
    const int most = __reduce_max_sync(kWholeWarp, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(most ^ (most >> 31 & 0x7fffffff));
  } else {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
    }
    return value;
  }
}

template <int kLanes>
__device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

// The pair of a warp, in every lane.
__device__ __forceinline__ Partial of_warp(const Partial& mine) {
  const float largest = lanes_max<kWarp>(mine.largest);
  return {largest, lanes_sum<kWarp>(rescaled(mine, largest))};
}

// Values that kLanes threads hold become powers, over the largest that any of those has; their pair, in every
// one of them.
template <int kLanes, int kVectors, int kWidth>
__device__ __forceinline__ Partial to_powers(float (&values)[kVectors][kWidth]) {
  float largest = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (float value : values[i]) largest = fmaxf(largest, value);
  }
  largest = lanes_max<kLanes>(largest);
  const Power power(largest);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (float& value : values[i]) sum += value = power(value);
  }
  return {largest, lanes_sum<kLanes>(sum)};
}

// The pair of a row, in every thread, from `count` pairs in shared memory; whole warps call it.
__device__ __forceinline__ Partial combined(const Partial* partials, int count) {
  const int lane = threadIdx.x % kWarp;
  Partial mine{-INFINITY, 0};
  for (int i = lane; i < count; i += kWarp) mine.largest = fmaxf(mine.largest, partials[i].largest);
  mine.largest = lanes_max<kWarp>(mine.largest);
  for (int i = lane; i < count; i += kWarp) mine.sum += rescaled(partials[i], mine.largest);
  mine.sum = lanes_sum<kWarp>(mine.sum);
  return mine;
}

// The same where `count` is small and known: every thread reads them all, without shuffles.
template <int kCount>
__device__ __forceinline__ Partial combined_few(const Partial* partials) {
  Partial mine{-INFINITY, 0};
#pragma unroll
  for (int i = 0; i < kCount; ++i) mine.largest = fmaxf(mine.largest, partials[i].largest);
#pragma unroll
  for (int i = 0; i < kCount; ++i) mine.sum += rescaled(partials[i], mine.largest);
  return mine;
}

}  // namespace kernels::softmax
