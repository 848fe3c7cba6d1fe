// The dtypes that kernels know. Device code and bindings share this file, so it includes neither torch nor
// CUDA.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HOST_DEVICE inline
#endif

namespace kernels {

enum class Dtype : int32_t { kFloat64, kFloat32, kFloat16, kBfloat16, kInt64, kInt32 };

// A type as a value, so that a generic lambda can be called with one.
template <typename T>
struct Type {
  using type = T;
};

// What arithmetic on T is done in: half types in float, the others in themselves.
template <typename T, bool kHalf = sizeof(T) == 2>
struct ComputeOf {
  using type = T;
};
template <typename T>
struct ComputeOf<T, true> {
  using type = float;
};
template <typename T>
using Compute = typename ComputeOf<T>::type;

// Between a half type and float. device.cuh specializes it for CUDA's half types, whose casts a build may
// turn off.
template <typename T>
struct ViaFloat {
  HOST_DEVICE static T from(float value) { return static_cast<T>(value); }
  HOST_DEVICE static float to(T value) { return static_cast<float>(value); }
};

// From S to T as torch converts: half types are reached, and left, by way of float.
template <typename T, typename S>
HOST_DEVICE T convert(S value) {
  if constexpr (std::is_same_v<T, S>) {
    return value;
  } else if constexpr (sizeof(S) == 2) {
    return convert<T>(ViaFloat<S>::to(value));
  } else if constexpr (sizeof(T) == 2) {
    return ViaFloat<T>::from(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Elements rounded up to whole blocks.
HOST_DEVICE int64_t ceil_div(int64_t n, int64_t block) { return (n + block - 1) / block; }

}  // namespace kernels
