// GeLU of one element with the instructions that a GPU has: 2^x and 1/x by the special function unit, no
// branch, and erf as 2^x times a polynomial. About 11 (tanh) and 20 (erf) instructions an element for half
// types, where memory leaves time for about 31 on an H200, and up to 50 for float, where it leaves 62.
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

// Half an ulp, by one step of Newton's. x is finite and at least 1.
__device__ __forceinline__ float reciprocal(float x) {
  const float y = reciprocal_approx(x);
  return fmaf(y, fmaf(-x, y, 1.0f), y);
}

// c[0] + c[1]*x + ...
template <int kCount>
__device__ __forceinline__ float polynomial(const float (&c)[kCount], float x) {
  float y = c[kCount - 1];
#pragma unroll
  for (int i = kCount - 2; i >= 0; --i) y = fmaf(y, x, c[i]);
  return y;
}

// The normal tail Q(a) = (1 - erf(a / sqrt(2))) / 2 is exp(-a*a/2) * R(a), and R is smooth: with
// t = 1 / (1 + p*a) it is t times a polynomial in t (the form of Hastings, Approximations for Digital
// Computers, 1955). All coefficients here are weighted least-squares fits of the relative error; those of the
// tail for 0 <= a <= 14, where e = exp(-a*a/2) leaves the range of float.
__device__ __forceinline__ float tail_short(float a, float e) {  // relative error 1e-6
  constexpr float c[] = {0.14567827f,  0.144241732f,  0.137966163f, 0.0351993482f,
                         0.165481982f, -0.176751497f, 0.0481844654f};
  const float t = reciprocal_approx(fmaf(a, 0.365f, 1.0f));
  return e * (t * polynomial(c, t));
}

__device__ __forceinline__ float tail_long(float a, float e) {  // relative error 2e-8, and 5 ulp of rounding
  constexpr float c[] = {0.1595763f,  0.159619234f,  0.133209842f, 0.0910064081f, -0.0258984975f,
                         0.11776049f, -0.371990289f, 0.380798391f, -0.17618063f,  0.0320987582f};
  const float t = reciprocal(fmaf(fminf(a, 20.0f), 0.4f, 1.0f));
  return e * (t * polynomial(c, t));
}

// The normal distribution function where |x| < 1.25, to an ulp: there 1 - Q(x) would inherit Q's rounding.
__device__ __forceinline__ float distribution_near_0(float x) {
  constexpr float c[] = {0.39894228f,     -0.0664903744f,  0.00997349993f, -0.00118710961f,
                         0.000115032157f, -9.05844096e-6f, 4.76074829e-7f};
  return fmaf(x, polynomial(c, x * x), 0.5f);
}

// T is what is stored: a half type, or float, whose results keep their relative accuracy in the negative
// tail.
template <typename T, bool kTanh>
struct FastGelu {
  static constexpr bool kExact = sizeof(T) == 4;
  static constexpr double kLog2e = 1.4426950408889634;
  static constexpr float kLn2 = 0.6931471805599453f;
  static constexpr float kDensity = 0.3989422804014327f;  // 1 / sqrt(2 * pi)
  static constexpr double kC = 0.7978845608028654;        // sqrt(2 / pi)
  static constexpr double kK = 0.044715;                  // of the tanh form

  // exp(-2u) in the tanh form, exp(-x*x/2) in the other; and what x is multiplied with.
  struct Weight {
    float e, w;
  };

  __device__ static float forward(float x) { return x * weight<false>(x).w; }

  __device__ static float derivative(float x) {
    const Weight of = weight<true>(x);
    if constexpr (kTanh) {  // 1 - w is e*w; and x meets a 0 before x * x overflows
      const float t = x * of.w * (of.e * of.w);
      return of.w + fmaf(t * x * x, static_cast<float>(6 * kC * kK), t * static_cast<float>(2 * kC));
    } else {
      return fmaf(x, kDensity * of.e, of.w);
    }
  }

 private:
  // kSlope: for the derivative, which multiplies e with a weight of 0 and so needs it finite.
  template <bool kSlope>
  __device__ static Weight weight(float x) {
    if constexpr (kTanh) {
      const float e = kExact ? exp_minus_2u(x) : exp_minus_2u_short<kSlope>(x);
      return {e, kExact ? reciprocal(1 + e) : reciprocal_approx(1 + e)};
    } else if constexpr (kExact) {
      const float a = fabsf(x), e = exp_minus_half_square(a), tail = tail_long(a, e);
      return {e, a < 1.25f ? distribution_near_0(x) : (x > 0 ? 1 - tail : tail)};
    } else {
      const float a = fabsf(x), e = exp2_approx(x * x * static_cast<float>(-0.5 * kLog2e));
      const float tail = tail_short(a, e);
      return {e, x > 0 ? 1 - tail : tail};
    }
  }

  static constexpr double kLinear = -2 * kC * kLog2e, kCubic = kLinear * kK;  // log2 of exp(-2u)

  template <bool kFinite>
  __device__ static float exp_minus_2u_short(float x) {
    const float z = x * fmaf(x * x, static_cast<float>(kCubic), static_cast<float>(kLinear));
    return exp2_approx(kFinite ? fminf(z, 127.0f) : z);
  }

  // An error of one part in 2^24 of an exponent is |exponent| parts in 2^24 of the result: the exponent is
  // carried in two floats. At most 2^127, whose reciprocal is a 0 already.
  __device__ static float exp_minus_2u(float x) {
    constexpr float kHigh = static_cast<float>(kLinear), kLow = static_cast<float>(kLinear - kHigh);
    constexpr float kCube = static_cast<float>(kCubic), kCubeLow = static_cast<float>(kCubic - kCube);
    x = fminf(fmaxf(x, -20.0f), 20.0f);
    const float square = x * x, square_low = fmaf(x, x, -square);
    const float p = fmaf(square, kCube, kHigh);
    const float p_low =
        fmaf(square, kCube, kHigh - p) + fmaf(square, kCubeLow, fmaf(square_low, kCube, kLow));
    const float z = x * p, z_low = fmaf(x, p_low, fmaf(x, p, -z));
    return exp2_of(fminf(z, 127.0f), z_low);
  }

  __device__ static float exp_minus_half_square(float a) {
    a = fminf(a, 20.0f);  // beyond, the result is a 0 already, and the square would overflow
    constexpr float kHigh = static_cast<float>(-0.5 * kLog2e),
                    kLow = static_cast<float>(-0.5 * kLog2e - kHigh);
    const float square = a * a, square_low = fmaf(a, a, -square), z = square * kHigh;
    return exp2_of(z, fmaf(square_low, kHigh, fmaf(square, kLow, fmaf(square, kHigh, -z))));
  }

  __device__ static float exp2_of(float z, float z_low) {
    const float e = exp2_approx(z);
    return fmaf(e * kLn2, z_low, e);
  }
};

// Double has no fast instructions: the form of gelu.h.
template <bool kTanh>
struct FastGelu<double, kTanh> : Gelu<double, kTanh> {};

}  // namespace kernels
