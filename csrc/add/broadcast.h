// From two tensors of any shapes that broadcast to an output and the Addition that fills it, for all
// bindings.
#pragma once

#include <array>

#include "../common/stable.h"
#include "add.h"

namespace kernels {

using torch::headeronly::ScalarType;

constexpr int64_t kMostDims = 64;  // torch's own limit

// The output's shape and the operands' strides in it (0 where broadcast), before dims are merged.
struct Broadcast {
  int64_t rank;
  std::array<int64_t, kMostDims> size, a, b;
};

inline int64_t stride_in(const Tensor& tensor, int64_t d, int64_t size) {
  return d < 0 || (tensor.size(d) == 1 && size != 1) ? 0 : tensor.stride(d);
}

inline Broadcast broadcast(const Tensor& a, const Tensor& b) {
  const int64_t dim_a = a.dim(), dim_b = b.dim();
  Broadcast shape{dim_a > dim_b ? dim_a : dim_b, {}, {}, {}};
  for (int64_t d = 0; d < shape.rank; ++d) {
    const int64_t in_a = d - (shape.rank - dim_a), in_b = d - (shape.rank - dim_b);
    const int64_t size_a = in_a < 0 ? 1 : a.size(in_a), size_b = in_b < 0 ? 1 : b.size(in_b);
    check(size_a == size_b || size_a == 1 || size_b == 1, "a and b have shapes that do not broadcast.");
    shape.size[d] = size_a == 1 ? size_b : size_a;
    shape.a[d] = stride_in(a, in_a, shape.size[d]);
    shape.b[d] = stride_in(b, in_b, shape.size[d]);
  }
  return shape;
}

inline bool has_shape(const Tensor& tensor, const Broadcast& shape) {
  if (tensor.dim() != shape.rank) return false;
  for (int64_t d = 0; d < shape.rank; ++d) {
    if (tensor.size(d) != shape.size[d]) return false;
  }
  return true;
}

inline Tensor empty_like_as(const Tensor& like, ScalarType dtype) {
  using torch::stable::detail::from;
  std::array<StableIValue, 6> stack{from(like),         from(std::optional<ScalarType>(dtype)),
                                    from(std::nullopt), from(std::nullopt),
                                    from(std::nullopt), from(std::nullopt)};
  TORCH_ERROR_CODE_CHECK(aoti_torch_call_dispatcher("aten::empty_like", "", stack.data()));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// Dense, in the memory order of the first operand that has the whole shape; else contiguous.
inline Tensor output_of(const Tensor& a, const Tensor& b, const Broadcast& shape, ScalarType dtype) {
  const int64_t* strides = nullptr;
  std::array<int64_t, kMostDims> contiguous;
  for (const Tensor* t : {&a, &b}) {
    if (strides != nullptr || !has_shape(*t, shape)) continue;
    if (!t->is_contiguous()) return empty_like_as(*t, dtype);
    strides = t->strides().data();
  }
  if (strides == nullptr) {
    for (int64_t d = shape.rank - 1, step = 1; d >= 0; --d) {
      contiguous[d] = step;
      step *= shape.size[d] > 1 ? shape.size[d] : 1;
    }
    strides = contiguous.data();
  }
  return empty(shape.rank, shape.size.data(), strides, dtype, a);
}

// The output's dims in the order of its memory, those that every operand walks as one made one; dims of size
// 1 go. What is left must fit kMaxRank.
inline Addition merged(const Broadcast& shape, const Tensor& a, const Tensor& b, const Tensor& out) {
  Addition add{{a.data_ptr(), dtype_of(a), {}},
               {b.data_ptr(), dtype_of(b), {}},
               out.data_ptr(),
               dtype_of(out),
               out.numel(),
               0,
               {}};
  std::array<int64_t, kMostDims> order;
  int64_t count = 0;
  for (int64_t d = 0; d < shape.rank; ++d) {
    if (shape.size[d] == 1) continue;
    int64_t at = count++;
    for (; at > 0 && out.stride(order[at - 1]) < out.stride(d); --at) order[at] = order[at - 1];
    order[at] = d;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = order[i], last = add.rank - 1, size = shape.size[d];
    const bool joins =
        add.rank > 0 && add.a.stride[last] == shape.a[d] * size && add.b.stride[last] == shape.b[d] * size;
    check(joins || add.rank < kMaxRank, "add takes 4 dims that do not merge.");
    const int to = joins ? last : add.rank++;
    add.size[to] = joins ? add.size[to] * size : size;
    add.a.stride[to] = shape.a[d];
    add.b.stride[to] = shape.b[d];
  }
  if (add.rank == 0) add.rank = 1, add.size[0] = 1;
  return add;
}

struct Prepared {
  Tensor out;
  Addition add;
};

// `dtype` is the output's: what torch promotes a's and b's to.
inline Prepared prepare(const Tensor& a, const Tensor& b, ScalarType dtype) {
  check(a.is_cuda() == b.is_cuda() && a.get_device_index() == b.get_device_index(),
        "a and b are on different devices.");
  const Broadcast shape = broadcast(a, b);
  Tensor out = output_of(a, b, shape, dtype);
  const Addition add = merged(shape, a, b, out);
  return {std::move(out), add};
}

}  // namespace kernels
