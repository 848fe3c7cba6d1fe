// GeLU, several loads of 16 bytes under way in each thread.
#include "vector.h"

#include "../common/pack.cuh"
#include "fast.cuh"

namespace kernels {
namespace {

constexpr int kMaxThreads = 512;
constexpr int64_t kFew = 1 << 20;  // elements: up to here a call is little more than its launch

template <typename T, bool kTanh>
struct Forward {
  static constexpr int kInputs = 1;
  __device__ static Compute<T> of(Compute<T> x) { return FastGelu<T, kTanh>::forward(x); }
};

template <typename T, bool kTanh>
struct Backward {  // inputs: x, upstream gradient
  static constexpr int kInputs = 2;
  __device__ static Compute<T> of(Compute<T> x, Compute<T> grad) {
    return grad * FastGelu<T, kTanh>::derivative(x);
  }
};

template <typename T, typename F, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> apply(const Pack<T, kWidth> (&in)[F::kInputs]) {
  Compute<T> x[kWidth], y[kWidth];
  widen(in[0], x);
  if constexpr (F::kInputs == 1) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = F::of(x[i]);
  } else {
    Compute<T> grad[kWidth];
    widen(in[1], grad);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = F::of(x[i], grad[i]);
  }
  return narrow<T, kWidth>(y);
}

// x, other, y: (n,). A block has kUnroll * blockDim.x packs, and a thread's are blockDim.x apart, so that
// each load of a warp is one contiguous piece. All loads come before the first use.
template <typename T, typename F, int kWidth, int kUnroll>
__global__ void __launch_bounds__(kMaxThreads)
    map_kernel(const T* __restrict__ x, const T* __restrict__ other, T* __restrict__ y, int64_t n) {
  using P = Pack<T, kWidth>;
  const T* from[2] = {x, other};
  const int64_t packs = n / kWidth, block = static_cast<int64_t>(blockDim.x) * kUnroll;
  const int64_t first = blockIdx.x * block, at = first + threadIdx.x;
  P in[kUnroll][F::kInputs];
  if (first + block <= packs) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int k = 0; k < F::kInputs; ++k) {
        in[u][k] = reinterpret_cast<const P*>(from[k])[at + u * blockDim.x];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      reinterpret_cast<P*>(y)[at + u * blockDim.x] = apply<T, F, kWidth>(in[u]);
    }
    return;
  }
  for (int64_t i = at; i < packs; i += blockDim.x) {  // the last block alone comes here
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) in[0][k] = reinterpret_cast<const P*>(from[k])[i];
    reinterpret_cast<P*>(y)[i] = apply<T, F, kWidth>(in[0]);
  }
  const int64_t rest = packs * kWidth + threadIdx.x;  // fewer than a pack
  if (rest < n) {
    Pack<T, 1> one[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) one[k].at[0] = from[k][rest];
    y[rest] = apply<T, F, 1>(one).at[0];
  }
}

template <typename T, typename F, int kWidth, int kUnroll>
cudaError_t launch(const T* x, const T* other, T* y, int64_t n, Cut cut, cudaStream_t stream) {
  // One block more than whole blocks of packs where anything is left: it takes the rest.
  const int64_t block = cut.threads * kUnroll * kWidth;
  map_kernel<T, F, kWidth, kUnroll>
      <<<static_cast<unsigned>(ceil_div(n, block)), static_cast<unsigned>(cut.threads), 0, stream>>>(x, other,
                                                                                                     y, n);
  return cudaGetLastError();
}

template <typename T, typename F>
cudaError_t run(const void* x, const void* other, void* y, int64_t n, Cut cut, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;  // a grid of no blocks is an error
  if (cut.threads % 32 != 0 || cut.threads < 32 || cut.threads > kMaxThreads) return cudaErrorInvalidValue;
  const T *a = static_cast<const T*>(x), *b = static_cast<const T*>(other);
  T* to = static_cast<T*>(y);
  // A view may start at any element: then elements are moved one by one, more of them at a time.
  if (!is_aligned(x) || !is_aligned(other) || !is_aligned(y))
    return launch<T, F, 1, 8>(a, b, to, n, cut, stream);
  const int64_t loads = cut.loads != 0 ? cut.loads : n > kFew ? 2 : 1;
  switch (loads <= F::kInputs ? 1 : loads / F::kInputs) {
    case 1:
      return launch<T, F, kWide<T>, 1>(a, b, to, n, cut, stream);
    case 2:
      return launch<T, F, kWide<T>, 2>(a, b, to, n, cut, stream);
    case 4:
      return launch<T, F, kWide<T>, 4>(a, b, to, n, cut, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t gelu_vector(const void* x, void* y, int64_t n, Dtype dtype, bool tanh, Cut cut,
                        cudaStream_t stream) {
  return with_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return tanh ? run<T, Forward<T, true>>(x, x, y, n, cut, stream)
                : run<T, Forward<T, false>>(x, x, y, n, cut, stream);
  });
}

cudaError_t gelu_vector_backward(const void* grad, const void* x, void* dx, int64_t n, Dtype dtype, bool tanh,
                                 Cut cut, cudaStream_t stream) {
  return with_floating(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return tanh ? run<T, Backward<T, true>>(x, grad, dx, n, cut, stream)
                : run<T, Backward<T, false>>(x, grad, dx, n, cut, stream);
  });
}

}  // namespace kernels
