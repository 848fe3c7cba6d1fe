// Distances between all pairs of points: one thread an output.
#include "thread.h"

#include <algorithm>

#include "../common/device.cuh"
#include "norm.h"

namespace kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxRows = 65535;  // of the y and z dims of a grid
static_assert(kThreads % 32 == 0, "A block that is not whole warps of 32 wastes lanes in its last warp.");
static_assert(kThreads <= 1024, "CUDA allows at most 1024 threads a block.");

// x of the grid runs over m; y over n and z over the batch, both in strides, since they end at 65535.
template <typename T, Norm kNorm>
__global__ void cdist_kernel(const T* x1, const T* x2, T* out, int64_t batch, int64_t n, int64_t m, int64_t d,
                             Compute<T> p) {
  using C = Compute<T>;
  const int64_t j = thread_index();
  if (j >= m) return;
  for (int64_t b = blockIdx.z; b < batch; b += gridDim.z) {
    const T* second = x2 + (b * m + j) * d;
    for (int64_t i = blockIdx.y; i < n; i += gridDim.y) {
      const T* first = x1 + (b * n + i) * d;
      C sum = 0;
      for (int64_t k = 0; k < d; ++k) {
        sum = Distance<C, kNorm>::add(sum, convert<C>(first[k]) - convert<C>(second[k]), p);
      }
      out[(b * n + i) * m + j] = convert<T>(Distance<C, kNorm>::root(sum, p));
    }
  }
}

template <typename T, Norm kNorm>
cudaError_t launch(const void* x1, const void* x2, void* out, int64_t batch, int64_t n, int64_t m, int64_t d,
                   double p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(m, kThreads)), static_cast<unsigned>(std::min(n, kMaxRows)),
                  static_cast<unsigned>(std::min(batch, kMaxRows)));
  cdist_kernel<T, kNorm><<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x1), static_cast<const T*>(x2),
                                                        static_cast<T*>(out), batch, n, m, d,
                                                        static_cast<Compute<T>>(p));
  return cudaGetLastError();
}

}  // namespace

cudaError_t cdist_thread(const void* x1, const void* x2, void* out, int64_t batch, int64_t n, int64_t m,
                         int64_t d, double p, Dtype dtype, cudaStream_t stream) {
  if (batch == 0 || n == 0 || m == 0) return cudaSuccess;  // a grid of no blocks is an error
  return with_floating(dtype, [&](auto type) {
    return with_norm(p, [&](auto norm) {
      return launch<typename decltype(type)::type, decltype(norm)::value>(x1, x2, out, batch, n, m, d, p,
                                                                          stream);
    });
  });
}

}  // namespace kernels
