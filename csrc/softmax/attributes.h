// What the current device can do.
#pragma once

#include <cuda_runtime_api.h>

namespace kernels::softmax {

// 0 where the driver does not say.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

}  // namespace kernels::softmax
