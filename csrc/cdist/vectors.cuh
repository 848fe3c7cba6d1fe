// Several neighbouring elements at once, to and from float.
#pragma once

#include "../common/device.cuh"

namespace kernels {

// kCount values of T that lie together in memory, aligned to their size.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

// x[0 .. kCount) as float; where `packed` does not hold, or beyond `left`, one by one, 0 past the end.
template <int kCount, typename T>
__device__ __forceinline__ void load(float (&values)[kCount], const T* x, int left, bool packed) {
  if (packed && left >= kCount) {
    const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(x);
#pragma unroll
    for (int v = 0; v < kCount; ++v) values[v] = convert<float>(pack.values[v]);
  } else {
#pragma unroll
    for (int v = 0; v < kCount; ++v) values[v] = v < left ? convert<float>(x[v]) : 0.0f;
  }
}

// A store of 8 or 16 bytes that is not meant to stay in the cache: nothing here reads an output again.
template <typename T, int kCount>
__device__ __forceinline__ void stream(T* out, const Pack<T, kCount>& pack) {
  if constexpr (sizeof(pack) == 16) {
    __stcs(reinterpret_cast<float4*>(out), *reinterpret_cast<const float4*>(&pack));
  } else {
    static_assert(sizeof(pack) == 8, "A vector store here is of 8 or 16 bytes.");
    __stcs(reinterpret_cast<float2*>(out), *reinterpret_cast<const float2*>(&pack));
  }
}

// values -> out[0 .. kCount) in T; where `packed` does not hold only [first, last), one by one.
template <int kCount, typename T>
__device__ __forceinline__ void store(T* out, const float (&values)[kCount], bool packed, int64_t first,
                                      int64_t last) {
  if (packed) {
    Pack<T, kCount> pack;
#pragma unroll
    for (int v = 0; v < kCount; ++v) pack.values[v] = convert<T>(values[v]);
    stream(out, pack);
  } else {
#pragma unroll
    for (int v = 0; v < kCount; ++v) {
      if (v >= first && v < last) out[v] = convert<T>(values[v]);
    }
  }
}

inline bool aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace kernels
