// Neighbouring elements that one instruction moves: 16 bytes at most, which is as wide as a thread can load.
#pragma once

#include "device.cuh"

namespace kernels {

constexpr int kPackBytes = 16;

// T's in 16 bytes.
template <typename T>
constexpr int kWide = kPackBytes / sizeof(T);

// kWidth elements, aligned to their size: a pointer to one must be, too.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

// Whether a pack of 16 bytes may be read or written at `data`.
inline bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kPackBytes == 0; }

// Widened to what arithmetic is done in. Half types go two at a time: one instruction packs or rounds a pair.
template <typename T, int kWidth>
__device__ __forceinline__ void widen(const Pack<T, kWidth>& pack, Compute<T> (&out)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) out[i] = convert<Compute<T>>(pack.at[i]);
}

template <typename T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> narrow(const Compute<T> (&in)[kWidth]) {
  Pack<T, kWidth> pack;
  if constexpr (kWidth % 2 == 0 && std::is_same_v<T, __nv_bfloat16>) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(pack.at);
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) pairs[i / 2] = __floats2bfloat162_rn(in[i], in[i + 1]);
  } else if constexpr (kWidth % 2 == 0 && std::is_same_v<T, __half>) {
    auto* pairs = reinterpret_cast<__half2*>(pack.at);
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) pairs[i / 2] = __floats2half2_rn(in[i], in[i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) pack.at[i] = convert<T>(in[i]);
  }
  return pack;
}

}  // namespace kernels
