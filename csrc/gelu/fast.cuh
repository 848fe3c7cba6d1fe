// GeLU of one element with the instructions that a GPU has: 2^x and 1/x by the special function unit, no
// branch, and erf as 2^x times a polynomial. About 10 (tanh) and 17 (erf) instructions an element for half
// types, where memory leaves time for about 31 on an H200.
#pragma once

#include "../common/device.cuh"
#include "gelu.h"

namespace kernels {

__device__ __forceinline__ float exp2_approx(float x) {  // 2 ulp; subnormal results become 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal_approx(float x) {  // 1 ulp; subnormal results become 0
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The normal tail Q(a) = (1 - erf(a / sqrt(2))) / 2 is exp(-a*a/2) * R(a), and R is smooth: with
// t = 1 / (1 + p*a) it is t times a polynomial in t (the form of Hastings, Approximations for Digital
// Computers, 1955). The coefficients are a weighted least-squares fit of the relative error on 0 <= a <= 14.
template <bool kExact>
struct NormalTail;

template <>
struct NormalTail<false> {  // relative error 9e-7, for results that are rounded to 11 bits or fewer
  static constexpr float kP = 0.36f;
  __device__ static float polynomial(float t) {
    float y = 0.0470560668f;
    y = fmaf(y, t, -0.179763946f);
    y = fmaf(y, t, 0.180953029f);
    y = fmaf(y, t, 0.0265499685f);
    y = fmaf(y, t, 0.139719047f);
    y = fmaf(y, t, 0.141772489f);
    return fmaf(y, t, 0.143713043f);
  }
};

template <>
struct NormalTail<true> {  // relative error 5e-8, less than an ulp of float
  static constexpr float kP = 0.24f;
  __device__ static float polynomial(float t) {
    float y = 0.025473302f;
    y = fmaf(y, t, -0.12433431f);
    y = fmaf(y, t, 0.20472304f);
    y = fmaf(y, t, -0.143192273f);
    y = fmaf(y, t, 0.140487034f);
    y = fmaf(y, t, 0.0287147304f);
    y = fmaf(y, t, 0.0875516131f);
    y = fmaf(y, t, 0.0889836537f);
    y = fmaf(y, t, 0.095850773f);
    return fmaf(y, t, 0.0957424388f);
  }
};

// T is what is stored. A float result keeps its relative accuracy in the negative tail: the exponent is
// carried in two floats, since an error of one part in 2^24 of it is |exponent| parts in 2^24 of the result.
template <typename T, bool kTanh>
struct FastGelu {
  static constexpr bool kExact = sizeof(T) == 4;
  static constexpr float kLog2e = 1.4426950408889634f;
  static constexpr float kLn2 = 0.6931471805599453f;
  static constexpr float kDensity = 0.3989422804014327f;  // 1 / sqrt(2 * pi)
  static constexpr double kC = 0.7978845608028654;        // sqrt(2 / pi)
  static constexpr double kK = 0.044715;
  static constexpr double kLinear = -2 * kC * 1.4426950408889634;  // 2^(x * (kLinear + kCubic*x*x)) is
  static constexpr double kCubic = kLinear * kK;                   // exp(-2u), u as in the tanh form

  // The weight of x, and exp(-x*x/2) where the form has one.
  struct Weight {
    float w, e;
  };

  __device__ static Weight weight(float x) {
    if constexpr (kTanh) {
      const float e =
          kExact ? exp_minus_2u(x)
                 : exp2_approx(x * fmaf(x * x, static_cast<float>(kCubic), static_cast<float>(kLinear)));
      return {kExact ? __frcp_rn(1 + e) : reciprocal_approx(1 + e), 0};
    } else {
      const float a = fabsf(x), e = kExact ? exp_minus_half_square(x) : exp2_approx(x * x * (-0.5f * kLog2e));
      const float d = fmaf(a, NormalTail<kExact>::kP, 1.0f), t = kExact ? __frcp_rn(d) : reciprocal_approx(d);
      const float tail = e * (t * NormalTail<kExact>::polynomial(t));
      return {x > 0 ? 1 - tail : tail, e};
    }
  }

  __device__ static float forward(float x) { return x * weight(x).w; }

  __device__ static float derivative(float x) {
    const Weight of = weight(x);
    if constexpr (kTanh) {
      const float t = x * (of.w - of.w * of.w);  // first, so that x * x meets a 0 before it overflows
      const float c = static_cast<float>(2 * kC), d = static_cast<float>(6 * kC * kK);
      return of.w + fmaf(t * x * x, d, t * c);
    } else {
      return fmaf(x, kDensity * of.e, of.w);
    }
  }

 private:
  __device__ static float exp_minus_2u(float x) {
    x = fminf(fmaxf(x, -20.0f), 20.0f);  // beyond, the result is 0 or infinite already
    constexpr float kHigh = static_cast<float>(kLinear), kLow = static_cast<float>(kLinear - kHigh);
    constexpr float kCube = static_cast<float>(kCubic), kCubeLow = static_cast<float>(kCubic - kCube);
    const float square = x * x, square_low = fmaf(x, x, -square);
    const float p = fmaf(square, kCube, kHigh);
    const float p_low =
        fmaf(square, kCube, kHigh - p) + fmaf(square, kCubeLow, fmaf(square_low, kCube, kLow));
    const float z = x * p, z_low = fmaf(x, p, -z) + x * p_low;
    const float e = exp2f(z);
    return fmaf(e * kLn2, z_low, e);
  }

  __device__ static float exp_minus_half_square(float x) {
    x = fminf(fabsf(x), 20.0f);
    constexpr double kScale = -0.5 * 1.4426950408889634;
    constexpr float kHigh = static_cast<float>(kScale), kLow = static_cast<float>(kScale - kHigh);
    const float square = x * x, square_low = fmaf(x, x, -square);
    const float z = square * kHigh, z_low = fmaf(square, kHigh, -z) + fmaf(square_low, kHigh, square * kLow);
    const float e = exp2f(z);
    return fmaf(e * kLn2, z_low, e);
  }
};

// Double has no fast instructions: the form of gelu.h.
template <bool kTanh>
struct FastGelu<double, kTanh> : Gelu<double, kTanh> {};

}  // namespace kernels
