// Launches on cards that are not here: the linker gives the launchers these functions in place of CUDA's
// (--wrap). A launch is a few words of stdout.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <thread>

namespace {

struct Card {
  int major, processors, shared_bytes;
} card;
std::atomic<const void*> limited = nullptr;  // the kernel that the limit is of
std::atomic<int> limit = 0, beyond_portable = 0;
bool quiet = false;

}  // namespace

extern "C" {

cudaError_t __wrap_cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? card.major
           : attribute == cudaDevAttrMultiProcessorCount  ? card.processors
                                                          : card.shared_bytes;
  return cudaSuccess;
}

cudaError_t __wrap_cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  limited = kernel;
  (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? limit : beyond_portable) = value;
  if (quiet) std::this_thread::yield();
  return cudaSuccess;
}

cudaError_t __wrap_cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  const int allowed = limited == kernel ? limit.load() : -1;
  if (quiet)
    return static_cast<int>(config->dynamicSmemBytes) > allowed ? cudaErrorInvalidValue : cudaSuccess;
  unsigned cluster = 1, together = 0;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& each = config->attrs[i];
    if (each.id == cudaLaunchAttributeClusterDimension) cluster = each.val.clusterDim.x;
    if (each.id == cudaLaunchAttributeCooperative) together = each.val.cooperative;
  }
  std::printf(" blocks=%u threads=%u bytes=%zu limit=%d attributes=%u cluster=%u beyond=%d together=%u",
              config->gridDim.x, config->blockDim.x, config->dynamicSmemBytes, allowed, config->numAttrs,
              cluster, beyond_portable.load(), together);
  return cudaSuccess;
}

}  // extern "C"
