// The launchers of the gradient of cdist. Device memory, contiguous; p > 0.
#pragma once

#include <cuda_runtime_api.h>

#include "../common/dtype.h"

namespace kernels {

// One input's gradient: own[i] += sum over j of grad(i, j) * d distance(i, j) / d own[i].
struct Backward {
  const void* grad;       // [batch, rows, columns] in `dtype`
  const float* distance;  // the same sizes
  const float* own;       // [batch, rows, d] if own_is_rows, else [batch, columns, d]
  const float* other;     // the other of the two
  float* out;             // as own
  float* partial;         // [splits, like own]; not read where splits is 1
  bool own_is_rows;
  int64_t batch, rows, columns, d, splits;
  double p;
  Dtype dtype;
  cudaStream_t stream;

  int64_t own_count() const { return own_is_rows ? rows : columns; }
  int64_t other_count() const { return own_is_rows ? columns : rows; }
};

// Parts into which the sum is cut: of at most 512 terms, since long sums in float lose digits with the root
// of their length, and shorter where blocks would not fill the card. What the parts take is of the order of
// inputs and output.
int64_t splits_of(const Backward& call, int processors);

// Through differences, for every p.
cudaError_t cdist_backward_difference(const Backward& call);

// p = 2 only: as a matrix product about a point nearby, through differences wherever that would cancel.
cudaError_t cdist_backward_product(const Backward& call);

// out[i] = sum over s of partial[s, i], in order, so that the result is the same each time.
cudaError_t add_partials(const Backward& call);

}  // namespace kernels
