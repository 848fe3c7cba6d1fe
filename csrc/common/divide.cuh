// Quotients by one divisor without a division.
#pragma once

#include "device.cuh"

namespace kernels {

// For dividends and divisors below 2^31: three instructions instead of thirty (Granlund and Montgomery, PLDI
// 1994, figure 4.1).
struct FastDivisor {
  uint32_t factor, shift;

  FastDivisor() = default;
  explicit FastDivisor(int64_t divisor) : factor(0), shift(0) {
    while (shift < 31 && (int64_t{1} << shift) < divisor) ++shift;
    const uint64_t above = (uint64_t{1} << shift) - static_cast<uint64_t>(divisor);
    factor = static_cast<uint32_t>((above << 32) / static_cast<uint64_t>(divisor) + 1);
  }

  __device__ __forceinline__ uint32_t quotient(uint32_t dividend) const {
    return (__umulhi(dividend, factor) + dividend) >> shift;
  }
};

// The same for any dividend, from 2^31 on by the division itself. `most`: the largest dividend.
struct Divisor {
  int64_t value;
  bool small;
  FastDivisor fast;

  Divisor(int64_t divisor, int64_t most)
      : value(divisor), small(most < (int64_t{1} << 31)), fast(small ? divisor : 1) {}

  __device__ __forceinline__ int64_t quotient(int64_t i) const {
    return small ? fast.quotient(static_cast<uint32_t>(i)) : i / value;
  }
};

}  // namespace kernels
