// Rows of any width on any card: a block reads a row once for the largest element and the sum together,
// and once more, with luck from the cache, for the result.
#pragma once

#include "power.cuh"
#include "rows.cuh"

namespace kernels::softmax {

template <typename T, int kThreads, bool kAligned>
__global__ void __launch_bounds__(kThreads) online_kernel(Rows<T> all) {
  constexpr int kV = kPerVector<T>, kBatch = 4, kWarps = kThreads / kWarp;
  __shared__ Partial partials[kWarps];
  const Row<T, kAligned> row(all, blockIdx.x);
  const int vectors = row.vectors();
  Partial mine{-INFINITY, 0};
  for (int v = threadIdx.x; v < vectors; v += kBatch * kThreads) {
    uint4 bits[kBatch];
    row.load(v, kThreads, bits);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      float values[kV], largest = mine.largest;
      unpack<T>(bits[b], values);
#pragma unroll
      for (float value : values) largest = fmaxf(largest, value);
      mine = {largest, rescaled(mine, largest)};
      const Power power(largest);
#pragma unroll
      for (float value : values) mine.sum += power(value);
    }
  }
  mine = of_warp(mine);
  if (threadIdx.x % kWarp == 0) partials[threadIdx.x / kWarp] = mine;
  __syncthreads();
  const Partial whole = combined(partials, kWarps);
  const Power power(whole.largest);
  const float scale = 1 / whole.sum;
  for (int v = threadIdx.x; v < vectors; v += kBatch * kThreads) {
    uint4 bits[kBatch];
    row.load(v, kThreads, bits);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (v + b * kThreads >= vectors) continue;
      float values[kV];
      unpack<T>(bits[b], values);
#pragma unroll
      for (float& value : values) value = power(value) * scale;
      row.store(v + b * kThreads, values);
    }
  }
}

template <int kThreads, typename T>
cudaError_t launch_online(const Rows<T>& all, cudaStream_t stream) {
  if (all.rows > 2147483647) return cudaErrorInvalidConfiguration;
  const auto rows = static_cast<unsigned>(all.rows);
  if (all.aligned) {
    online_kernel<T, kThreads, true><<<rows, kThreads, 0, stream>>>(all);
  } else {
    online_kernel<T, kThreads, false><<<rows, kThreads, 0, stream>>>(all);
  }
  return cudaGetLastError();
}

}  // namespace kernels::softmax
