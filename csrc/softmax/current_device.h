// What the launchers ask of the current device.
#pragma once

#include <cuda_runtime_api.h>

namespace kernels::softmax {

// 0 where it cannot be told.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

inline bool has_clusters() { return device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9; }

// Blocks of a cluster to choose. No card has promised to run more than 8; those of data centers run 16.
inline int most_clustered() {
  const int major = device_attribute(cudaDevAttrComputeCapabilityMajor);
  return major == 9 || major == 10 ? 16 : 8;
}

}  // namespace kernels::softmax
