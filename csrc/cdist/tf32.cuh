// The tensor core's product of TF32 numbers, and float32 as two of them. sm_80 and above.
#pragma once

#include "../common/device.cuh"

namespace kernels {

// A value as hi + lo, right to a unit in the last place: hi is rounded to TF32's 11 bits, so that what is
// left has 12, of which lo keeps 11. A NaN may round to 0 in hi, and stays one in lo.
struct Split {
  uint32_t hi, lo;

  __device__ __forceinline__ explicit Split(float value) {
    constexpr uint32_t kHalf = 0x1000, kKept = 0xffffe000;
    hi = (__float_as_uint(value) + kHalf) & kKept;
    lo = __float_as_uint(value - __uint_as_float(hi)) & kKept;
  }
};

// sum [16, 8] += a [16, 8] b [8, 8]. With g = lane / 4 and t = lane % 4 a thread holds of a (g, t), (g + 8,
// t), (g, t + 4), (g + 8, t + 4), of b (t, g), (t + 4, g), of the sum (g, 2t), (g, 2t + 1) and the same of g
// + 8.
__device__ __forceinline__ void multiply_tf32(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace kernels
