// Rows that do not start on 16-byte boundaries, an element a load: neighbouring threads have neighbouring
// elements, so memory sees whole lines all the same, and no row has edges to be put together.
#pragma once

#include "backward_block.cuh"
#include "warp.cuh"

namespace kernels::softmax {

// Threads of a block, and how many rows they have, where kTeam of them share one.
template <int kTeam>
constexpr int kScalarThreads = kTeam < kWarpThreads ? kWarpThreads : kTeam;

// kTeam threads hold both rows in registers, kItems elements of each; where kCluster, the teams of a cluster
// of blocks share a row. grid: the blocks of all rows, or a block for as many rows as it has teams of at most
// a warp.
template <typename T, int kTeam, int kItems, bool kCluster>
__global__ void __launch_bounds__(kScalarThreads<kTeam>, kResidentThreads / kScalarThreads<kTeam>)
    scalar_backward_kernel(GradRows<T> all) {
  constexpr int kRows = kScalarThreads<kTeam> / kTeam;
  static_assert(kRows == 1 || (kTeam <= kWarp && !kCluster), "Teams of several warps have a block each.");
  const Peers<kCluster> peers;
  peers.arrive();  // nobody's shared memory may be written before it runs
  const int lane = peers.rank * (kTeam * kItems) + threadIdx.x % kTeam;
  const int64_t row = static_cast<int64_t>(blockIdx.x / peers.count) * kRows + threadIdx.x / kTeam;
  const Rows<T>& rows = all.g_to_dx;
  const int cols = row < rows.rows ? static_cast<int>(rows.cols) : 0;  // the shuffles want every lane
  const int count = (cols - lane + kTeam - 1) / kTeam;                 // of this thread's elements
  const T* g_first = rows.x + row * rows.stride + lane;
  const T* y_first = all.y + row * rows.cols + lane;
  // Else the compiler computes an address for each of them anew, and keeps those.
  asm volatile("" : "+l"(g_first), "+l"(y_first));
  T g[kItems], y[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    y[i] = i < count ? __ldg(y_first + i * kTeam) : T{};
    g[i] = i < count ? __ldg(g_first + i * kTeam) : T{};
  }
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    sums[i % 4] = fmaf(convert<float>(g[i]), convert<float>(y[i]), sums[i % 4]);
  }
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  if constexpr (kRows > 1) {
    sum = lanes_sum<kTeam>(sum);
  } else {
    __shared__ float partials[(kCluster ? kMaxCluster : 1) * (kTeam / kWarp)];
    sum = sum_of_row<kTeam / kWarp>(sum, partials, peers);
  }
  T* dx_first = rows.y + row * rows.cols + lane;
  asm volatile("" : "+l"(dx_first));
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (i < count) {
      dx_first[i * kTeam] = convert<T>(convert<float>(y[i]) * (convert<float>(g[i]) - sum));
    }
  }
}

template <typename T, int kTeam, int kItems>
cudaError_t launch_scalar_backward(const GradRows<T>& all, cudaStream_t stream) {
  constexpr int kThreads = kScalarThreads<kTeam>;
  const int64_t blocks = ceil_div(all.g_to_dx.rows, kThreads / kTeam);
  if (blocks > 2147483647) return cudaErrorInvalidConfiguration;
  scalar_backward_kernel<T, kTeam, kItems, false><<<blocks, kThreads, 0, stream>>>(all);
  return cudaGetLastError();
}

template <typename T, int kThreads, int kItems>
cudaError_t launch_scalar_cluster_backward(const GradRows<T>& all, int cluster, cudaStream_t stream) {
  return launch_together(&scalar_backward_kernel<T, kThreads, kItems, true>, all.g_to_dx.rows * cluster,
                         kThreads, 0, cluster, stream, all);
}

}  // namespace kernels::softmax
