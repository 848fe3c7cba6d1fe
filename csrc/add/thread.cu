// Addition, one thread per output element.
#include "thread.h"

#include "../common/device.cuh"

namespace kernels {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads % 32 == 0, "A block that is not whole warps of 32 wastes lanes in its last warp.");
static_assert(sizeof(Addition) <= 4096, "Before sm_70 and CUDA 12.1 a kernel's parameters end at 4 KiB.");

template <typename T, bool kMixed>
__global__ void add_kernel(const Addition add) {
  const int64_t i = thread_index();
  if (i < add.n) add_one<T, DeviceTypes, kMixed>(add, i);
}

}  // namespace

cudaError_t add_thread(const Addition& add, cudaStream_t stream) {
  if (add.n == 0) return cudaSuccess;  // a grid of no blocks is an error
  return with_any(add.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    auto kernel = is_mixed(add) ? add_kernel<T, true> : add_kernel<T, false>;
    kernel<<<static_cast<unsigned>(ceil_div(add.n, kThreads)), kThreads, 0, stream>>>(add);
    return cudaGetLastError();
  });
}

}  // namespace kernels
