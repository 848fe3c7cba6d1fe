// The p-norm of norm.h for float, with the card's own roots and powers, and its derivative.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>

#include "norm.h"

namespace kernels {

// At most 1 ulp off, 0 for 0 and right for denormals (PTX ISA); a correctly rounded root costs three times
// that.
__device__ __forceinline__ float fast_sqrt(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

// base^exponent for base >= 0 and exponent > 0: log2 of 0 is -inf, and 2^-inf is 0. log2f, since the card's
// own is off by 2^-22, which the exponent multiplies, and a gradient by p - 1 again.
__device__ __forceinline__ float fast_power(float base, float exponent) {
  return exp2f(exponent * log2f(base));
}

template <Norm kNorm>
struct FastDistance {
  // p is read for kAny only.
  __device__ __forceinline__ static float add(float sum, float difference, float p) {
    const float size = fabsf(difference);
    if constexpr (kNorm == Norm::kThree) {
      return fmaf(difference * difference, size, sum);
    } else if constexpr (kNorm == Norm::kThreeHalves) {
      return fmaf(size, fast_sqrt(size), sum);
    } else if constexpr (kNorm == Norm::kInfinity) {
      return fmaxf(sum, size);  // NaN is passed over
    } else if constexpr (kNorm == Norm::kAny) {
      return sum + fast_power(size, p);
    } else if constexpr (kNorm == Norm::kOne) {
      return sum + size;  // as an operand's |.|, which norm.h's comparison does not become
    } else if constexpr (kNorm == Norm::kZero) {
      return sum + (size > 0 ? 1.0f : size);  // NaN stays NaN
    } else {
      return fmaf(difference, difference, sum);
    }
  }

  // Accurate for kAny: an error of the logarithm of a sum grows with the sum, and this is done once an
  // output.
  __device__ __forceinline__ static float root(float sum, float p) {
    if constexpr (kNorm == Norm::kTwo) {
      return fast_sqrt(sum);
    } else if constexpr (kNorm == Norm::kThree) {
      return cbrtf(sum);
    } else if constexpr (kNorm == Norm::kThreeHalves) {
      const float root = cbrtf(sum);
      return root * root;
    } else if constexpr (kNorm == Norm::kAny) {
      return powf(sum, 1 / p);
    } else {
      return sum;
    }
  }
};

// The roots of many sums in their place. For p = 2 one look at the smallest saves most of them the care for
// denormals, which is three instructions out of four.
template <Norm kNorm, int kRows, int kColumns>
__device__ __forceinline__ void take_roots(float (&sums)[kRows][kColumns], float p) {
  if constexpr (kNorm == Norm::kTwo) {
    float least = sums[0][0];
#pragma unroll
    for (int i = 1; i < kRows * kColumns; ++i) least = fminf(least, sums[i / kColumns][i % kColumns]);
    if (least >= FLT_MIN) {
#pragma unroll
      for (int i = 0; i < kRows * kColumns; ++i) {
        float& sum = sums[i / kColumns][i % kColumns];
        asm("sqrt.approx.ftz.f32 %0, %0;" : "+f"(sum));
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kRows * kColumns; ++i) {
    float& sum = sums[i / kColumns][i % kColumns];
    sum = FastDistance<kNorm>::root(sum, p);
  }
}

}  // namespace kernels
