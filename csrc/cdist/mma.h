// The launchers in mma.cu: Euclidean distances in float32 on Hopper's tensor cores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kernels {

constexpr int64_t kMmaTile = 128;      // rows of x1 and of x2 that one warpgroup takes at once
constexpr int64_t kMmaPair = 256;      // rows of x1 that one block takes
constexpr int64_t kMmaDepth = 64;      // coordinates of one block of operands
constexpr int64_t kMmaMaxDepth = 128;  // rows of x1 must stay in shared memory
constexpr int64_t kMmaStrip = 16;      // rows of a tile that are listed together when a pair in them is near
constexpr int kMmaSample = 32;         // rows of each input that centre and unit are taken from

// Points x[b, i, k] with strides in elements; `shared`: all batches of the output read the same ones.
struct MmaPoints {
  const float* x;
  int64_t batch, rows, stride_batch, stride_row, stride_col;
};

// Device memory that the launchers work in, besides inputs and output.
struct MmaScratch {
  void* operand1;  // mma_operand_bytes(batch1, n, d, kMmaPair)
  void* operand2;  // mma_operand_bytes(batch2, m, d, kMmaTile)
  float* norm1;    // [batch1, n to whole pairs]
  float* norm2;    // [batch2, m to whole tiles]
  float* centre;   // [d to whole blocks]
  float* peak;     // [blocks]
  float* unit;     // [1]
};

int64_t mma_padded(int64_t rows, int64_t to);
int64_t mma_strips(int64_t batch, int64_t n, int64_t m);  // what the list may come to hold
int64_t mma_operand_bytes(int64_t batch, int64_t rows, int64_t d, int64_t to);

// Whether this build holds code for the current device.
bool mma_available();

// out [batch, n, m] contiguous. todo: room for 1 + mma_strips(batch, n, m) numbers, of which todo[0] becomes
// how many strips hold a near pair, and those from todo[1] on become (b * ceil(n / kMmaStrip) + strip) *
// ceil(m / kMmaTile) + tile.
cudaError_t cdist_mma(const MmaPoints& x1, const MmaPoints& x2, const MmaScratch& scratch, float* out,
                      int* todo, int64_t batch, int64_t d, cudaStream_t stream);

}  // namespace kernels
