// GeLU of one element and its derivative, the same for CPU and GPU. T is float or double.
#pragma once

#include <cmath>
#include <type_traits>

#include "../common/dtype.h"

namespace kernels {

// Both forms saturate without overflow to NaN: exp may reach infinity, and 1 / infinity is the right 0.
template <typename T, bool kTanh>
struct Gelu {
  static_assert(
      std::is_same_v<T, float> || std::is_same_v<T, double>,
      "GeLU is computed in float or double: widen half types before the call, round once after it.");

  static constexpr T kC = static_cast<T>(0.7978845608028654);         // sqrt(2 / pi)
  static constexpr T kK = static_cast<T>(0.044715);                   // of the tanh form
  static constexpr T kRootHalf = static_cast<T>(0.7071067811865476);  // sqrt(1 / 2)
  static constexpr T kDensity = static_cast<T>(0.3989422804014327);   // 1 / sqrt(2 * pi)

  // The weight of x: (1 + tanh(u)) / 2, which is sigmoid(2u), or the normal distribution function.
  HOST_DEVICE static T weight(T x) {
    if constexpr (kTanh) {
      return 1 / (1 + exp(-2 * kC * (x + kK * (x * x * x))));
    } else {
      return static_cast<T>(0.5) * (1 + erf(x * kRootHalf));
    }
  }

  HOST_DEVICE static T forward(T x) { return x * weight(x); }

  HOST_DEVICE static T derivative(T x) {
    const T w = weight(x);
    if constexpr (kTanh) {
      const T t = x * (w * (1 - w));  // first, so that x * x meets a 0 before it overflows
      return w + 2 * kC * (t + 3 * kK * (t * x * x));
    } else {
      return w + x * (kDensity * exp(static_cast<T>(-0.5) * x * x));
    }
  }

 private:
  // <cmath>'s overloads, so that a float stays a float on the host too.
  HOST_DEVICE static T exp(T x) {
    using std::exp;
    return exp(x);
  }
  HOST_DEVICE static T erf(T x) {
    using std::erf;
    return erf(x);
  }
};

}  // namespace kernels
