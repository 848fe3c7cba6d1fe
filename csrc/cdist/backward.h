// The launchers of the gradient of cdist. Device memory, contiguous; p > 0.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"

namespace kernels {

// What of a device decides how work is shared out.
struct BackwardDevice {
  int processors, shared_bytes;  // multiprocessors; shared memory that a block may ask for
};

// One input's gradient: own[i] += sum over j of grad(i, j) * d distance(i, j) / d own[i].
struct Backward {
  const void* grad;       // [batch, rows, columns] in `dtype`
  const float* distance;  // the same sizes
  const float* own;       // [batch, rows, d] if own_is_rows, else [batch, columns, d]
  const float* other;     // the other of the two
  float* out;             // as own
  float* partial;         // [splits, like own]; not read where splits is 1
  float* scratch;         // of the product form
  bool own_is_rows;
  int64_t batch, rows, columns, d, splits;
  double p;
  Dtype dtype;
  BackwardDevice device;
  cudaStream_t stream;

  int64_t own_count() const { return own_is_rows ? rows : columns; }
  int64_t other_count() const { return own_is_rows ? columns : rows; }
};

// Through differences, for every p.
cudaError_t cdist_backward_difference(const Backward& call);

// Parts into which the sum is cut: of at most 512 terms, since long sums in float lose digits with the root
// of their length, and shorter where blocks would not fill the card. What the parts take is of the order of
// inputs and output.
int64_t difference_splits(const Backward& call);

// p = 2 only: as a matrix product about a point nearby, through differences wherever that would cancel.
cudaError_t cdist_backward_product(const Backward& call);

// Parts by which the last blocks leave the least of the card idle; sums are short without them.
int64_t product_splits(const Backward& call);

// Floats of scratch: both pieces of every other point, and a centre.
int64_t product_scratch(const Backward& call);

}  // namespace kernels
