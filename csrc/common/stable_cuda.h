// What a binding of a CUDA kernel needs besides stable.h.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "stable.h"

// shim.h declares this under USE_CUDA only, which a build of an extension does not set.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace kernels {

using torch::stable::accelerator::DeviceGuard;

// Makes a tensor's device the current one while it lives. Mostly it is already, and asking costs less than
// setting.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const Tensor& tensor) {
    int current = -1;
    if (cudaGetDevice(&current) != cudaSuccess || current != tensor.get_device_index()) {
      guard_.emplace(tensor.get_device_index());
    }
  }

 private:
  std::optional<DeviceGuard> guard_;
};

inline cudaStream_t current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return static_cast<cudaStream_t>(stream);
}

// A launch that failed becomes a RuntimeError: `<kernel> did not launch: <CUDA's words>.`
inline void check_launch(cudaError_t error, const char* kernel) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // forget it, or whoever asks after the next launch is told of this one
  check(false, std::string(kernel) + " did not launch: " + cudaGetErrorString(error) + ".");
}

}  // namespace kernels
