// Sums over the middle of three dims, for the gradient of a broadcast operand.
#include "sum.cuh"

#include "../common/pack.cuh"

namespace kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr int64_t kLeastPerSplit = 1024;  // shorter pieces cost more in launches than they save
constexpr int64_t kBlocksPerSm = 16;      // two full loads of a multiprocessor

// (outer, reduce, inner) -> (outer, splits, inner). A block has `across` packs of neighbouring columns; its
// kThreads / across rows of threads go down the piece together and meet in shared memory.
template <typename T, typename To, int kWidth>
__global__ void __launch_bounds__(kThreads) sum_kernel(const Sum sum, int across) {
  using Acc = Compute<T>;
  __shared__ Acc shared[kThreads * kWidth];
  const int column = threadIdx.x % across, row = threadIdx.x / across, down = kThreads / across;
  const int64_t packs = sum.inner / kWidth, i = static_cast<int64_t>(blockIdx.x) * across + column;
  const int64_t piece = ceil_div(sum.reduce, sum.splits), start = blockIdx.y * piece;
  const int64_t end = start + piece < sum.reduce ? start + piece : sum.reduce;
  for (int64_t o = blockIdx.z; o < sum.outer; o += gridDim.z) {
    Acc total[kWidth] = {};
    if (i < packs) {
      const auto* from = reinterpret_cast<const Pack<T, kWidth>*>(sum.grad) + o * sum.reduce * packs + i;
#pragma unroll kUnroll
      for (int64_t r = start + row; r < end; r += down) {
        Acc x[kWidth];
        widen(from[r * packs], x);
#pragma unroll
        for (int w = 0; w < kWidth; ++w) total[w] += x[w];
      }
    }
#pragma unroll
    for (int w = 0; w < kWidth; ++w) shared[threadIdx.x * kWidth + w] = total[w];
    for (int half = down / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row < half) {
#pragma unroll
        for (int w = 0; w < kWidth; ++w) {
          shared[threadIdx.x * kWidth + w] += shared[(threadIdx.x + half * across) * kWidth + w];
        }
      }
    }
    if (row == 0 && i < packs) {
      To* out = static_cast<To*>(sum.out) + ((o * sum.splits + blockIdx.y) * packs + i) * kWidth;
#pragma unroll
      for (int w = 0; w < kWidth; ++w) out[w] = convert<To>(shared[threadIdx.x * kWidth + w]);
    }
    __syncthreads();
  }
}

// inner is 1: (outer, reduce) -> (outer, splits). A block goes along a piece of one row.
template <typename T, typename To, int kWidth>
__global__ void __launch_bounds__(kThreads) sum_row_kernel(const Sum sum) {
  using Acc = Compute<T>;
  __shared__ Acc shared[kThreads];
  const int64_t piece = ceil_div(ceil_div(sum.reduce, sum.splits), kWidth) * kWidth,
                start = blockIdx.y * piece;
  const int64_t end = start + piece < sum.reduce ? start + piece : sum.reduce;
  for (int64_t o = blockIdx.x; o < sum.outer; o += gridDim.x) {
    const T* from = static_cast<const T*>(sum.grad) + o * sum.reduce;
    Acc total[kWidth] = {};
#pragma unroll kUnroll
    for (int64_t r = start + static_cast<int64_t>(threadIdx.x) * kWidth; r < end; r += kThreads * kWidth) {
      Acc x[kWidth];
      widen(*reinterpret_cast<const Pack<T, kWidth>*>(from + r), x);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) total[w] += x[w];
    }
#pragma unroll
    for (int w = 1; w < kWidth; ++w) total[0] += total[w];
    shared[threadIdx.x] = total[0];
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) static_cast<To*>(sum.out)[o * sum.splits + blockIdx.y] = convert<To>(shared[0]);
    __syncthreads();
  }
}

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename T, typename To, int kWidth>
cudaError_t launch(const Sum& sum, cudaStream_t stream) {
  const unsigned splits = static_cast<unsigned>(sum.splits);
  if (sum.inner == 1) {
    const dim3 grid(static_cast<unsigned>(least(sum.outer, INT32_MAX)), splits);
    sum_row_kernel<T, To, kWidth><<<grid, kThreads, 0, stream>>>(sum);
  } else {
    const int64_t packs = sum.inner / kWidth;
    int across = 1;
    while (across < 32 && across < packs) across *= 2;
    const dim3 grid(static_cast<unsigned>(ceil_div(packs, across)), splits,
                    static_cast<unsigned>(least(sum.outer, 65535)));
    sum_kernel<T, To, kWidth><<<grid, kThreads, 0, stream>>>(sum, across);
  }
  return cudaGetLastError();
}

template <typename T, typename To>
cudaError_t run(const Sum& sum, cudaStream_t stream) {
  const int64_t row = sum.inner == 1 ? sum.reduce : sum.inner;
  const bool wide = row % kWide<T> == 0 && is_aligned(sum.grad);
  return wide ? launch<T, To, kWide<T>>(sum, stream) : launch<T, To, 1>(sum, stream);
}

}  // namespace

cudaError_t sum_splits(Sum& sum, int device) {
  int sms = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  const int64_t columns = 512 / (sum.from == Dtype::kFloat64   ? 8
                                 : sum.from == Dtype::kFloat32 ? 4
                                                               : 2);  // of a block
  const int64_t blocks = sum.outer * (sum.inner == 1 ? 1 : ceil_div(sum.inner, columns));
  const int64_t wanted = ceil_div(sms * kBlocksPerSm, blocks > 0 ? blocks : 1);
  const int64_t most = sum.inner == 1 ? sum.reduce / (8 * kLeastPerSplit) : sum.reduce / 64;
  sum.splits = most < 1 ? 1 : least(least(wanted, most), 65535);
  return error;
}

cudaError_t sum_middle(const Sum& sum, cudaStream_t stream) {
  if (sum.outer * sum.inner == 0) return cudaSuccess;  // a grid of no blocks is an error
  return with_floating(sum.from, [&](auto from) {
    return with_floating(sum.to, [&](auto to) {
      return run<typename decltype(from)::type, typename decltype(to)::type>(sum, stream);
    });
  });
}

}  // namespace kernels
