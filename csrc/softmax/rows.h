// Any tensor as rows along its last dim, for the bindings of the kernels that take a stride between rows.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "../common/stable_cuda.h"

namespace kernels::softmax {

// Elements between the starts of two rows where they are evenly spaced and the last dim is dense; else -1.
inline int64_t row_stride(const Tensor& x, int64_t cols) {
  const int64_t dims = x.dim();
  if (dims == 0) return 1;
  if (x.stride(dims - 1) != 1 && cols != 1) return -1;
  int64_t stride = cols, rows = 1;
  for (int64_t d = dims - 2; d >= 0; --d) {
    const int64_t size = x.size(d);
    if (size == 1) continue;
    if (rows == 1) stride = x.stride(d);
    if (x.stride(d) != stride * rows) return -1;
    rows *= size;
  }
  return stride;
}

inline Tensor made(int64_t dims, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                   const Tensor& like) {
  int32_t device = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
  AtenTensorHandle tensor = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(dims, sizes, strides, dtype, device, like.get_device_index(), &tensor));
  return Tensor(tensor);
}

// A new contiguous tensor of x's sizes. The short way: empty_like looks its operator up by name at each call.
inline Tensor empty_contiguous(const Tensor& x) {
  const int64_t dims = x.dim();
  std::vector<int64_t> sizes(dims), strides(dims);
  int64_t stride = 1;
  for (int64_t d = dims - 1; d >= 0; --d) {
    sizes[d] = x.size(d);
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  return made(dims, sizes.data(), strides.data(), dtype, x);
}

// Bytes on x's device.
inline Tensor empty_bytes(const Tensor& x, int64_t bytes) {
  const int64_t stride = 1;
  return made(1, &bytes, &stride, aoti_torch_dtype_uint8(), x);
}

inline Tensor contiguous_copy(const Tensor& x) {
  Tensor dense = empty_contiguous(x);
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(dense.get(), x.get(), /*non_blocking=*/0));
  return dense;
}

inline int64_t cols_of(const Tensor& x) { return x.dim() == 0 ? 1 : x.size(x.dim() - 1); }

// `x`, or a contiguous copy where its rows are not evenly spaced or not dense; `packed`: or lie apart.
inline Tensor with_even_rows(const Tensor& x, bool packed) {
  const int64_t cols = cols_of(x), stride = row_stride(x, cols);
  if (packed ? stride == cols : stride >= 0) return x;
  return contiguous_copy(x);
}

// `x`, which is contiguous, or a copy where it does not start on the boundary of a 16-byte vector.
inline Tensor on_boundary(const Tensor& x) {
  if (reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0) return x;
  return contiguous_copy(x);
}

}  // namespace kernels::softmax
