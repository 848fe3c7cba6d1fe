// Addition of one output element, the same for CPU and GPU: find the operands by their strides, convert each
// to the output's dtype, add.
#pragma once

#include "../common/dtype.h"

namespace kernels {

constexpr int kMaxRank = 4;

// An operand as seen from the output: one stride per output dim, in elements, 0 where it is broadcast.
struct Operand {
  const void* data;
  Dtype dtype;
  int64_t stride[kMaxRank];
};

// The output is contiguous: n elements, `rank` dims of the sizes given, outermost first.
struct Addition {
  Operand a, b;
  void* out;
  Dtype dtype;
  int64_t n;
  int rank;
  int64_t size[kMaxRank];
};

struct Offsets {
  int64_t a, b;
};

// Where the operands of output element i are, in elements.
HOST_DEVICE Offsets offsets_of(const Addition& add, int64_t i) {
  Offsets at{0, 0};
  for (int d = kMaxRank - 1; d > 0; --d) {  // a fixed count, so that it unrolls and stays in registers
    if (d >= add.rank) continue;
    const int64_t index = i % add.size[d];
    at.a += index * add.a.stride[d];
    at.b += index * add.b.stride[d];
    i /= add.size[d];
  }
  return {at.a + i * add.a.stride[0], at.b + i * add.b.stride[0]};
}

// Element `at` of an operand as a T. `Types` names the half types of the side that this runs on.
template <typename T, typename Types>
HOST_DEVICE T load(const Operand& operand, int64_t at) {
  switch (operand.dtype) {
    case Dtype::kFloat64:
      return convert<T>(static_cast<const double*>(operand.data)[at]);
    case Dtype::kFloat32:
      return convert<T>(static_cast<const float*>(operand.data)[at]);
    case Dtype::kFloat16:
      return convert<T>(static_cast<const typename Types::Half*>(operand.data)[at]);
    case Dtype::kBfloat16:
      return convert<T>(static_cast<const typename Types::Bfloat16*>(operand.data)[at]);
    case Dtype::kInt64:
      return convert<T>(static_cast<const int64_t*>(operand.data)[at]);
    default:
      return convert<T>(static_cast<const int32_t*>(operand.data)[at]);
  }
}

// Half types add in float and round once.
template <typename T>
HOST_DEVICE T sum(T a, T b) {
  return convert<T>(convert<Compute<T>>(a) + convert<Compute<T>>(b));
}

// One output element. kMixed: the operands' dtypes are looked up, else both are T already.
template <typename T, typename Types, bool kMixed>
HOST_DEVICE void add_one(const Addition& add, int64_t i) {
  const Offsets at = offsets_of(add, i);
  T* out = static_cast<T*>(add.out);
  if constexpr (kMixed) {
    out[i] = sum(load<T, Types>(add.a, at.a), load<T, Types>(add.b, at.b));
  } else {
    out[i] = sum(static_cast<const T*>(add.a.data)[at.a], static_cast<const T*>(add.b.data)[at.b]);
  }
}

HOST_DEVICE bool is_mixed(const Addition& add) {
  return add.a.dtype != add.dtype || add.b.dtype != add.dtype;
}

}  // namespace kernels
