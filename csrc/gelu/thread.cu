// GeLU, one thread per element.
#include "thread.h"

#include "../common/device.cuh"
#include "gelu.h"

namespace kernels {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads % 32 == 0, "A block that is not whole warps of 32 wastes lanes in its last warp.");
static_assert(kThreads <= 1024, "CUDA allows at most 1024 threads a block.");

template <typename T, bool kTanh>
__global__ void forward_kernel(const T* x, T* y, int64_t n) {
  const int64_t i = thread_index();
  if (i >= n) return;
  y[i] = convert<T>(Gelu<Compute<T>, kTanh>::forward(convert<Compute<T>>(x[i])));
}

template <typename T, bool kTanh>
__global__ void backward_kernel(const T* grad, const T* x, T* dx, int64_t n) {
  const int64_t i = thread_index();
  if (i >= n) return;
  const auto slope = Gelu<Compute<T>, kTanh>::derivative(convert<Compute<T>>(x[i]));
  dx[i] = convert<T>(convert<Compute<T>>(grad[i]) * slope);
}

template <typename... Args>
cudaError_t launch(void (*kernel)(Args...), int64_t n, cudaStream_t stream, Args... args) {
  if (n == 0) return cudaSuccess;  // a grid of no blocks is an error
  kernel<<<static_cast<unsigned>(ceil_div(n, kThreads)), kThreads, 0, stream>>>(args...);
  return cudaGetLastError();
}

}  // namespace

cudaError_t gelu_thread(const void* x, void* y, int64_t n, Dtype dtype, bool tanh, cudaStream_t stream) {
  return with_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    auto kernel = tanh ? forward_kernel<T, true> : forward_kernel<T, false>;
    return launch(kernel, n, stream, static_cast<const T*>(x), static_cast<T*>(y), n);
  });
}

cudaError_t gelu_thread_backward(const void* grad, const void* x, void* dx, int64_t n, Dtype dtype, bool tanh,
                                 cudaStream_t stream) {
  return with_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    auto kernel = tanh ? backward_kernel<T, true> : backward_kernel<T, false>;
    return launch(kernel, n, stream, static_cast<const T*>(grad), static_cast<const T*>(x),
                  static_cast<T*>(dx), n);
  });
}

}  // namespace kernels
