// How much shared memory a launch may ask for. CUDA keeps that with the kernel, not with the launch.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

namespace kernels::softmax {

// Launches `kernel` by `launch()` with up to `bytes` of dynamic shared memory, one thread at a time: another
// whose rows are narrower would lower the limit before this one has launched. All launches of a kernel must
// come by the same lambda, which has the lock.
template <typename Kernel, typename Launch>
cudaError_t with_shared_bytes(Kernel* kernel, int bytes, Launch&& launch) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  return error == cudaSuccess ? launch() : error;
}

}  // namespace kernels::softmax
