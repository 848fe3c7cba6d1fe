// Euclidean distances in float32 on Hopper's tensor cores: |a|^2 + |b|^2 - 2 a.b from float16 pieces.
#include "mma.h"

#include <algorithm>

#include "mma_near.cuh"
#include "mma_operands.cuh"
#include "mma_roots.cuh"
#include "mma_tiles.cuh"

namespace kernels {
namespace mma {

constexpr int kThreads = 384;  // a warpgroup that loads and two that multiply

#if HOPPER

template <int kBlocks>
__device__ void multiply_tiles(const Walk& walk, const MmaScratch& s, const char* rows, const char* stages,
                               Barriers& barriers, int group, float* out, int* todo, Bound bound) {
  using S = Shape<kBlocks>;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const float unit = *s.unit;
  const uint32_t a = hopper::shared_address(rows) + group * S::kTileBytes, b = hopper::shared_address(stages);
  uint32_t stage = 0, phase = 0, rows_phase = 0;
  float acc[2][64];
  Norms norms;
  norms.factor = -2.f * unit * unit, norms.tau = bound.tau, norms.floor = bound.floor * unit * unit;
  for (Tile tile(walk); tile.left > 0; tile.advance(walk)) {
    if (tile.first) {
      const float* from =
          s.norm1 + (static_cast<int64_t>(tile.batch) * walk.batch_tiles1 + tile.pair * 2 + group) * kMmaTile;
      for (int i = 0; i < 4; ++i)
        norms.rows[i / 2][i % 2] = from[i / 2 * 64 + warp * 16 + i % 2 * 8 + lane / 4];
      hopper::barrier_wait(&barriers.rows_full, rows_phase);
      rows_phase ^= 1;
    }
    const float* from =
        s.norm2 + (static_cast<int64_t>(tile.batch) * walk.batch_tiles2 + tile.column) * kMmaTile;
#pragma unroll
    for (int q = 0; q < 8; ++q)
      norms.columns[q] = *reinterpret_cast<const float4*>(from + 16 * q + lane % 4 * 4);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      hopper::barrier_wait(&barriers.full[stage], phase);
      multiply(acc, a + block * S::kStageBytes, b + stage * S::kStageBytes, block > 0);
      if (lane == 0) hopper::barrier_arrive(&barriers.empty[stage]);
      if (++stage == S::kStages) stage = 0, phase ^= 1;
    }
    if (tile.last(walk) && lane == 0) hopper::barrier_arrive(&barriers.rows_empty);
    if (walk.m % 4 == 0 && (tile.column + 1) * kMmaTile <= walk.m) {
      store_tile<true>(acc, walk, tile, group, norms, out, todo);
    } else {
      store_tile<false>(acc, walk, tile, group, norms, out, todo);
    }
  }
}

#endif

// Warpgroup 0 loads; 1 and 2 multiply, each its 128 of the block's 256 rows of x1 with every tile of x2 that
// passes. One works on its tile's roots while the other multiplies.
template <int kBlocks>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(Walk walk, MmaScratch s, float* out, int* todo, Bound bound) {
#if HOPPER
  using S = Shape<kBlocks>;
  extern __shared__ char dynamic[];
  __shared__ Barriers barriers;
  char* rows = dynamic + (1024 - hopper::shared_address(dynamic) % 1024) % 1024;
  char* stages = rows + S::kRowBytes;
  if (threadIdx.x == 0) {
    hopper::barrier_init(&barriers.rows_full, 1);
    hopper::barrier_init(&barriers.rows_empty, 8);
    for (int i = 0; i < S::kStages; ++i) {
      hopper::barrier_init(&barriers.full[i], 1);
      hopper::barrier_init(&barriers.empty[i], 8);
    }
    hopper::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    hopper::give_registers<40>();
    if (threadIdx.x == 0) load_tiles<kBlocks>(walk, s, rows, stages, barriers);
  } else {
    hopper::take_registers<232>();
    multiply_tiles<kBlocks>(walk, s, rows, stages, barriers, threadIdx.x / 128 - 1, out, todo, bound);
  }
#endif
}

template <int kBlocks>
cudaError_t launch(Walk walk, const MmaScratch& s, float* out, int* todo, Bound bound, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  constexpr int kBytes = Shape<kBlocks>::kSharedBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(product_kernel<kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = static_cast<int>(std::min<int64_t>(processors, walk.total));
  product_kernel<kBlocks><<<blocks, kThreads, kBytes, stream>>>(walk, s, out, todo, bound);
  return cudaGetLastError();
}

void prepare(const MmaPoints& x1, const MmaPoints& x2, const MmaScratch& s, int* todo, int64_t d,
             cudaStream_t stream) {
  const int64_t padded1 = mma_padded(x1.rows, kMmaPair), padded2 = mma_padded(x2.rows, kMmaTile);
  const int64_t rows = x1.batch * padded1 + x2.batch * padded2;
  sample_kernel<<<ceil_div(d, kMmaDepth), dim3(kMmaDepth, kSampleGroups), 0, stream>>>(x1, x2, d, s.centre,
                                                                                       s.peak, todo);
  split_kernel<<<ceil_div(rows, kSplitWarps), kSplitWarps * 32, 0, stream>>>(x1, x2, d, s, padded1, padded2);
}

Walk walk_of(const MmaPoints& x1, const MmaPoints& x2, int64_t batch) {
  Walk walk;
  walk.n = x1.rows, walk.m = x2.rows;
  walk.pairs = static_cast<int>(ceil_div(x1.rows, kMmaPair));
  walk.tiles = static_cast<int>(ceil_div(x2.rows, kMmaTile));
  walk.batch_tiles1 = x1.batch > 1 ? 2 * walk.pairs : 0;
  walk.batch_tiles2 = x2.batch > 1 ? walk.tiles : 0;
  walk.total = batch * walk.pairs * walk.tiles;
  return walk;
}

// kernels/cdist/mma_operands.py derives both figures. Steps: those that add to a sum of large terms.
Bound bound_of(int64_t blocks) {
  const float steps = static_cast<float>(12 * blocks - 8), additions = 0.5f;
  return {(16 + steps + additions) / 128, static_cast<float>(blocks * kMmaDepth) / 256};
}

}  // namespace mma

int64_t mma_padded(int64_t rows, int64_t to) { return ceil_div(rows, to) * to; }

int64_t mma_strips(int64_t batch, int64_t n, int64_t m) {
  return batch * ceil_div(n, kMmaStrip) * ceil_div(m, kMmaTile);
}

int64_t mma_operand_bytes(int64_t batch, int64_t rows, int64_t d, int64_t to) {
  return batch * mma_padded(rows, to) * ceil_div(d, kMmaDepth) * kMmaDepth * 2 * sizeof(__half);
}

// Without Hopper's instructions the kernel is empty, and has no shared memory of its own.
bool mma_available() {
  cudaFuncAttributes attributes;
  const bool known = cudaFuncGetAttributes(&attributes, mma::product_kernel<1>) == cudaSuccess;
  if (!known) cudaGetLastError();
  return known && attributes.sharedSizeBytes > 0;
}

cudaError_t cdist_mma(const MmaPoints& x1, const MmaPoints& x2, const MmaScratch& scratch, float* out,
                      int* todo, int64_t batch, int64_t d, cudaStream_t stream) {
  const int64_t blocks = ceil_div(d, kMmaDepth);
  const mma::Walk walk = mma::walk_of(x1, x2, batch);
  const mma::Bound bound = mma::bound_of(blocks);
  mma::prepare(x1, x2, scratch, todo, d, stream);
  const cudaError_t error = blocks == 1 ? mma::launch<1>(walk, scratch, out, todo, bound, stream)
                                        : mma::launch<2>(walk, scratch, out, todo, bound, stream);
  if (error != cudaSuccess) return error;
  const int64_t strips = std::min<int64_t>(mma_strips(batch, x1.rows, x2.rows), mma::kNearBlocks);
  mma::near_kernel<<<strips, mma::kNearThreads, 0, stream>>>(x1, x2, out, todo, d, walk.tiles);
  return cudaGetLastError();
}

}  // namespace kernels
