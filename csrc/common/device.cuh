// CUDA's side of the dtypes. No torch here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "dtype.h"

namespace kernels {

struct DeviceTypes {
  using Half = __half;
  using Bfloat16 = __nv_bfloat16;
};

template <>
struct ViaFloat<__half> {
  HOST_DEVICE static __half from(float value) { return __float2half_rn(value); }
  HOST_DEVICE static float to(__half value) { return __half2float(value); }
};

template <>
struct ViaFloat<__nv_bfloat16> {
  HOST_DEVICE static __nv_bfloat16 from(float value) { return __float2bfloat16_rn(value); }
  HOST_DEVICE static float to(__nv_bfloat16 value) { return __bfloat162float(value); }
};

// Calls launch(Type<T>{}) with the element type, for kernels that compute in float: float64 is an invalid
// value.
template <typename Launch>
cudaError_t with_up_to_float(Dtype dtype, Launch&& launch) {
  switch (dtype) {
    case Dtype::kFloat32:
      return launch(Type<float>{});
    case Dtype::kFloat16:
      return launch(Type<__half>{});
    case Dtype::kBfloat16:
      return launch(Type<__nv_bfloat16>{});
    default:
      return cudaErrorInvalidValue;
  }
}

// Calls `launch(Type<T>{})` with the T that `dtype` names; integers are an invalid value.
template <typename Launch>
cudaError_t with_floating(Dtype dtype, Launch&& launch) {
  if (dtype == Dtype::kFloat64) return launch(Type<double>{});
  return with_up_to_float(dtype, launch);
}

// As with_floating, and integers too.
template <typename Launch>
cudaError_t with_any(Dtype dtype, Launch&& launch) {
  switch (dtype) {
    case Dtype::kInt64:
      return launch(Type<int64_t>{});
    case Dtype::kInt32:
      return launch(Type<int32_t>{});
    default:
      return with_floating(dtype, launch);
  }
}

// Which of n elements this thread has, in 64 bits: blockIdx.x * blockDim.x alone wraps at 2^32.
__device__ __forceinline__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace kernels
