// Elements of columns as they lie in memory, two of a half type to a word: how powers are made of them, kept
// and moved.
#pragma once

#include "power.cuh"
#include "rows.cuh"

namespace kernels::softmax {

// exp(x - largest), up to a factor that is the same for all x, as Power has it. A half type needs no
// subtraction: from 2^20 on its values lie 4096 or more apart, so that of x - largest only the sign matters,
// and a sixteenth of both is exact.
template <typename T>
struct Curve {
  float slope, shift;

  Curve() = default;
  __device__ explicit Curve(float largest) {
    const float finite = largest == -INFINITY ? 0 : largest;
    const bool coarse = fabsf(finite) >= 1048576.0f;
    slope = coarse ? 0.0625f : kLog2e;
    shift = coarse ? finite * 0.0625f : rintf(finite * kLog2e) - 7;
  }
  __device__ float operator()(float x) const { return exp2_approx(fmaf(x, slope, -shift)); }

 private:
  static constexpr float kLog2e = 1.44269502f;
};

template <>
struct Curve<float> : Power {
  Curve() = default;
  using Power::Power;
};

// What the results of a column are made with.
template <typename T>
struct alignas(16) Whole {
  Curve<T> curve;
  float scale;
};

// The one or two elements of a word.
template <typename T>
struct Word {
  static constexpr int kCount = 4 / sizeof(T);

  // `zero` is 0, which the compiler does not know: else it would keep from one time to the next what it had
  // widened, in twice the registers.
  static __device__ void widen(uint32_t word, uint32_t zero, float (&values)[kCount]) {
    if constexpr (kCount == 1) {
      values[0] = __uint_as_float(word);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      values[0] = __uint_as_float(__byte_perm(word, zero, 0x1044));
      values[1] = __uint_as_float(__byte_perm(word, zero, 0x3244));
    } else {
      word ^= zero;
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(word));
      values[0] = pair.x;
      values[1] = pair.y;
    }
  }
  static __device__ uint32_t narrow(const float (&values)[kCount]) {
    float all[kPerVector<T>] = {};
#pragma unroll
    for (int j = 0; j < kCount; ++j) all[j] = values[j];
    return pack<T>(all).x;
  }
};

__device__ __forceinline__ uint32_t& word_of(uint4& bits, int w) {
  return w == 0 ? bits.x : w == 1 ? bits.y : w == 2 ? bits.z : bits.w;
}

__device__ __forceinline__ uint32_t smaller(uint32_t a, uint32_t b) {
  const __nv_bfloat162 least =
      __hmin2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const uint32_t&>(least);
}

// Whether powers of bfloat16 over `most`, the largest of which is about 2^7, are normal numbers of float16
// for all from `least` on. Infinities and NaN are not.
__device__ __forceinline__ bool within_half(const uint32_t (&most)[4], const uint32_t (&least)[4]) {
  uint32_t widest = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const __nv_bfloat162 apart = __hsub2(reinterpret_cast<const __nv_bfloat162&>(most[w]),
                                         reinterpret_cast<const __nv_bfloat162&>(least[w]));
    const __nv_bfloat162 wider = __hmax2_nan(reinterpret_cast<const __nv_bfloat162&>(widest), apart);
    widest = reinterpret_cast<const uint32_t&>(wider);
  }
  float values[2];
  Word<__nv_bfloat16>::widen(widest, 0, values);
  return values[0] < 14 && values[1] < 14;
}

// To shared memory, without waiting for it.
__device__ __forceinline__ void copy_later(uint4* to, const void* from, bool there) {
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n"
      "@there cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(
          static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(static_cast<int>(there))
      : "memory");
}

// As one access, which the compiler does not always see in four words.
__device__ __forceinline__ void store_whole(void* to, const uint4& bits) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(bits.x), "r"(bits.y), "r"(bits.z),
               "r"(bits.w)
               : "memory");
}

}  // namespace kernels::softmax
