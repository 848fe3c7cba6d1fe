// From two tensors of any shapes that broadcast to an output and the Addition that fills it, for all
// bindings.
#pragma once

#include <array>
#include <optional>

#include "../common/stable.h"
#include "add.h"

namespace kernels {

using torch::headeronly::ScalarType;

constexpr int64_t kMostDims = 64;  // torch's own limit

// A tensor's geometry, asked for once: each question to the stable ABI is a call.
struct Geometry {
  int64_t rank;
  const int64_t *sizes, *strides;

  explicit Geometry(const Tensor& tensor)
      : rank(tensor.dim()), sizes(tensor.sizes().data()), strides(tensor.strides().data()) {}

  // Of dim d in a shape of `full` dims; missing ones in front have size 1.
  int64_t size(int64_t d, int64_t full) const { return d < full - rank ? 1 : sizes[d - (full - rank)]; }
  int64_t stride(int64_t d, int64_t full) const { return d < full - rank ? 0 : strides[d - (full - rank)]; }
};

// The output's shape and the operands' strides in it (0 where broadcast), before dims are merged.
struct Broadcast {
  int64_t rank;
  bool a_whole, b_whole;  // the operand has the output's shape
  int64_t size[kMostDims], a[kMostDims], b[kMostDims];
};

inline void broadcast(const Geometry& a, const Geometry& b, Broadcast& shape) {
  shape.rank = a.rank > b.rank ? a.rank : b.rank;
  shape.a_whole = a.rank == shape.rank;
  shape.b_whole = b.rank == shape.rank;
  for (int64_t d = 0; d < shape.rank; ++d) {
    const int64_t size_a = a.size(d, shape.rank), size_b = b.size(d, shape.rank);
    check(size_a == size_b || size_a == 1 || size_b == 1, "a and b have shapes that do not broadcast.");
    const int64_t size = size_a == 1 ? size_b : size_a;
    shape.size[d] = size;
    shape.a[d] = size_a == size ? a.stride(d, shape.rank) : 0;
    shape.b[d] = size_b == size ? b.stride(d, shape.rank) : 0;
    shape.a_whole &= size_a == size;
    shape.b_whole &= size_b == size;
  }
}

inline Tensor empty_like_as(const Tensor& like, int32_t dtype) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  std::array<StableIValue, 6> stack{
      from(like),         from(std::optional<ScalarType>(to<ScalarType>(from(dtype)))),
      from(std::nullopt), from(std::nullopt),
      from(std::nullopt), from(std::nullopt)};
  TORCH_ERROR_CODE_CHECK(aoti_torch_call_dispatcher("aten::empty_like", "", stack.data()));
  return to<Tensor>(stack[0]);
}

// Dense, in the memory order of the first operand that has the whole shape; else contiguous.
inline Tensor output_of(const Tensor& a, const Tensor& b, const Broadcast& shape, int32_t dtype) {
  if (shape.a_whole || shape.b_whole) {
    const Tensor& like = shape.a_whole ? a : b;
    if (!like.is_contiguous()) return empty_like_as(like, dtype);
    return empty(shape.rank, shape.size, like.strides().data(), dtype, a);
  }
  int64_t strides[kMostDims];
  for (int64_t d = shape.rank - 1, step = 1; d >= 0; --d) {
    strides[d] = step;
    step *= shape.size[d] > 1 ? shape.size[d] : 1;
  }
  return empty(shape.rank, shape.size, strides, dtype, a);
}

// The output's dims in the order of its memory, those that every operand walks as one made one; dims of size
// 1 go. What is left must fit kMaxRank.
inline void merge(const Broadcast& shape, const int64_t* out_strides, Addition& add) {
  int64_t order[kMostDims], count = 0;
  for (int64_t d = 0; d < shape.rank; ++d) {
    if (shape.size[d] == 1) continue;
    int64_t at = count++;
    for (; at > 0 && out_strides[order[at - 1]] < out_strides[d]; --at) order[at] = order[at - 1];
    order[at] = d;
  }
  add.rank = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = order[i], last = add.rank - 1, size = shape.size[d];
    const bool joins =
        add.rank > 0 && add.a.stride[last] == shape.a[d] * size && add.b.stride[last] == shape.b[d] * size;
    check(joins || add.rank < kMaxRank, "add takes 4 dims that do not merge.");
    const int64_t to = joins ? last : add.rank++;
    add.size[to] = joins ? add.size[to] * size : size;
    add.a.stride[to] = shape.a[d];
    add.b.stride[to] = shape.b[d];
  }
  if (add.rank == 0) add.rank = 1, add.size[0] = 1;
}

struct Prepared {
  Tensor out;
  Addition add;
};

// `dtype` is the output's: what torch promotes a's and b's to. Without one both have it already.
inline Prepared prepare(const Tensor& a, const Tensor& b, std::optional<ScalarType> dtype) {
  check(a.is_cuda() == b.is_cuda() && a.get_device_index() == b.get_device_index(),
        "a and b are on different devices.");
  Addition add{{a.data_ptr(), dtype_of(a), {}},
               {b.data_ptr(), dtype_of(b), {}},
               nullptr,
               dtype_of(a),
               a.numel(),
               1,
               {}};
  int32_t code = 0;
  if (dtype) {
    code = torch::stable::detail::to<int32_t>(torch::stable::detail::from(*dtype));
  } else {
    check(add.a.dtype == add.b.dtype, "a and b have two dtypes, and the sum's is not given.");
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(a.get(), &code));
  }
  if (!dtype && same_sizes(a, b) && a.is_contiguous() && b.is_contiguous()) {  // the common case
    Tensor out = empty_as(a);
    add.out = out.data_ptr();
    add.size[0] = add.n;
    add.a.stride[0] = add.b.stride[0] = 1;
    return {std::move(out), add};
  }
  Broadcast shape;
  broadcast(Geometry(a), Geometry(b), shape);
  Tensor out = output_of(a, b, shape, code);
  merge(shape, out.strides().data(), add);
  add.out = out.data_ptr();
  add.dtype = dtype_of(out);
  add.n = out.numel();
  return {std::move(out), add};
}

}  // namespace kernels
