// The launchers of the forward kernels that work along the last dim. Pointers are device memory.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"
#include "ring.h"

namespace kernels::softmax {

// At least one element. `stride` elements lie between the starts of two rows of x; y is contiguous. float32,
// float16 or bfloat16.
struct Task {
  const void* x;
  void* y;
  int64_t rows, cols, stride;
  Dtype dtype;
  cudaStream_t stream;

  bool known() const {
    return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
  }
  int64_t item_bytes() const { return dtype == Dtype::kFloat32 ? 4 : 2; }

  // Whether every row of both is whole 16-byte vectors on 16-byte boundaries.
  bool aligned() const {
    const auto bits = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y) |
                      static_cast<uintptr_t>((stride | cols) * item_bytes());
    return bits % 16 == 0;
  }

  // Whether a row of x may lie otherwise between 16-byte boundaries than its output.
  bool shifted() const {
    const auto between = reinterpret_cast<uintptr_t>(x) - reinterpret_cast<uintptr_t>(y);
    return (between | static_cast<uintptr_t>((stride - cols) * item_bytes())) % 16 != 0;
  }

  // 16-byte vectors that a row of the output may touch.
  int64_t vectors() const {
    const int64_t each = 16 / item_bytes();
    const bool on_boundaries = (reinterpret_cast<uintptr_t>(y) | cols * item_bytes()) % 16 == 0;
    return on_boundaries ? cols / each : (cols + 2 * (each - 1)) / each;
  }

  // The same, counted from the 128-byte boundary on at or before the row.
  int64_t line_vectors() const {
    const auto bits = reinterpret_cast<uintptr_t>(y) | static_cast<uintptr_t>(cols * item_bytes());
    return bits % 128 == 0 ? vectors() : vectors() + 7;
  }
};

// Of a row in a block's registers: 64 KiB, and one more where a row starts between two vectors.
constexpr int64_t kMostVectors = 4097;

// All return cudaErrorInvalidConfiguration for rows that they cannot hold.
cudaError_t vector_rows(const Task& task);  // registers of a warp where they suffice, else of a block
cudaError_t block_rows(const Task& task);   // registers of a block
// Registers of a cluster of `blocks` blocks of `threads`; 0 chooses. sm_90
cudaError_t cluster_rows(const Task& task, int blocks, int threads);
cudaError_t online_rows(const Task& task);  // any width, read twice

// How the current device's blocks share the rows of `task` in a ring (sm_90); `team` 0 chooses by width and
// number of rows.
Ring ring_for(const Task& task, int team);
// `scratch`: scratch_bytes on the device, of any content.
inline int64_t scratch_bytes(const Ring& ring, int64_t rows) {
  return ring.team > 1 ? rows * ring.team * 8 : 0;
}
cudaError_t ring_rows(const Task& task, const Ring& ring, void* scratch);

// A cluster's blocks have a row in shared memory (sm_90); cluster 0 where it does not fit.
struct Staged {
  int cluster;  // blocks that share a row
  int slice;    // vectors of it that a block has
};

Staged staged_for(const Task& task, int cluster);  // 0 chooses
cudaError_t staged_rows(const Task& task, const Staged& staged);

}  // namespace kernels::softmax
