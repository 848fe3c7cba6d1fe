// The p-norm of a vector of differences, one term at a time, the same for CPU and GPU.
#pragma once

#include <cmath>
#include <type_traits>

#include "../common/dtype.h"

namespace kernels {

enum class Norm { kZero, kOne, kThreeHalves, kTwo, kThree, kInfinity, kAny };

template <typename C, Norm kNorm>
struct Distance {
  static_assert(
      std::is_same_v<C, float> || std::is_same_v<C, double>,
      "Distances are accumulated in float or double: widen half types before the call, round once after it.");

  // p is read for kAny only, there greater than 0.
  HOST_DEVICE static C add(C sum, C difference, C p) {
    if constexpr (kNorm == Norm::kTwo) {
      return sum + difference * difference;
    } else {
      const C size = difference < 0 ? -difference : difference;
      if constexpr (kNorm == Norm::kOne) {
        return sum + size;
      } else if constexpr (kNorm == Norm::kZero) {
        return sum + (size > 0 ? C(1) : size);  // NaN stays NaN
      } else if constexpr (kNorm == Norm::kInfinity) {
        return size > sum ? size : sum;  // NaN is passed over, as in torch.cdist
      } else {
        return sum + power(size, p);
      }
    }
  }

  HOST_DEVICE static C root(C sum, C p) {
    if constexpr (kNorm == Norm::kTwo) {
      using std::sqrt;
      return sqrt(sum);
    } else if constexpr (kNorm == Norm::kAny) {
      return power(sum, 1 / p);
    } else {
      return sum;
    }
  }

 private:
  HOST_DEVICE static C power(C base, C exponent) {
    using std::pow;
    return pow(base, exponent);
  }
};

// Calls `run(std::integral_constant<Norm, N>{})` with the N for p, which is not negative. kThree and
// kThreeHalves are left to with_fast_norm: the forms here take any power alike.
template <typename Run>
auto with_norm(double p, Run&& run) {
  if (p == 2) return run(std::integral_constant<Norm, Norm::kTwo>{});
  if (p == 1) return run(std::integral_constant<Norm, Norm::kOne>{});
  if (p == 0) return run(std::integral_constant<Norm, Norm::kZero>{});
  if (std::isinf(p)) return run(std::integral_constant<Norm, Norm::kInfinity>{});
  return run(std::integral_constant<Norm, Norm::kAny>{});
}

// As with_norm, for the forms that have powers of 3 and 3/2 of their own.
template <typename Run>
auto with_fast_norm(double p, Run&& run) {
  if (p == 3) return run(std::integral_constant<Norm, Norm::kThree>{});
  if (p == 1.5) return run(std::integral_constant<Norm, Norm::kThreeHalves>{});
  return with_norm(p, run);
}

}  // namespace kernels
