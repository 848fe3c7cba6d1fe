// What every binding needs from torch's stable ABI (torch 2.9 and later), in one place. Device code never
// includes this.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dtype.h"

#ifndef TORCH_BOX
// torch 2.9 has the stable library but not yet the macro that unpacks a boxed call.
namespace kernels {
template <auto kFunction>
struct Boxed;
template <typename Result, typename... Args, Result (*kFunction)(Args...)>
struct Boxed<kFunction> {
  static void call(StableIValue* stack, uint64_t, uint64_t) {
    call_with(stack, std::index_sequence_for<Args...>{});
  }
  template <size_t... kIndex>
  static void call_with(StableIValue* stack, std::index_sequence<kIndex...>) {
    std::tuple<std::decay_t<Args>...> args{to<std::decay_t<Args>>(stack[kIndex])...};
    if constexpr (std::is_void_v<Result>) {
      std::apply(kFunction, args);
    } else {
      stack[0] = from(std::apply(kFunction, args));
    }
  }
};
}  // namespace kernels
#define TORCH_BOX(function) kernels::Boxed<function>::call
#endif

namespace kernels {

using torch::stable::Tensor;

// Throws what Python sees as a RuntimeError, with the sentence alone as its message.
inline void check(bool holds, const std::string& sentence) {
  if (!holds) throw std::runtime_error(sentence);
}

inline Dtype dtype_of(const Tensor& tensor) {
  using torch::headeronly::ScalarType;
  switch (tensor.scalar_type()) {
    case ScalarType::Double:
      return Dtype::kFloat64;
    case ScalarType::Float:
      return Dtype::kFloat32;
    case ScalarType::Half:
      return Dtype::kFloat16;
    case ScalarType::BFloat16:
      return Dtype::kBfloat16;
    case ScalarType::Long:
      return Dtype::kInt64;
    case ScalarType::Int:
      return Dtype::kInt32;
    default:
      throw std::runtime_error("The kernels know float64, float32, float16, bfloat16, int64 and int32 only.");
  }
}

inline bool same_sizes(const Tensor& a, const Tensor& b) {
  const auto of_a = a.sizes(), of_b = b.sizes();
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
}

inline bool same_strides(const Tensor& a, const Tensor& b) {
  const auto of_a = a.strides(), of_b = b.strides();
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
}

// A new tensor of `rank` sizes and strides on the device of `like`, without a trip through the dispatcher.
inline Tensor empty(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                    const Tensor& like) {
  int32_t device_type = 0;
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(rank, sizes, strides, dtype, device_type, like.get_device_index(), &made));
  return Tensor(made);
}

inline Tensor empty(int64_t rank, const int64_t* sizes, const int64_t* strides,
                    torch::headeronly::ScalarType dtype, const Tensor& like) {
  return empty(rank, sizes, strides, torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype)),
               like);
}

// A new tensor with the sizes, strides, dtype and device that torch.empty_like gives.
inline Tensor empty_as(const Tensor& tensor) {
  if (!tensor.is_contiguous()) return torch::stable::empty_like(tensor);
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  return empty(tensor.dim(), tensor.sizes().data(), tensor.strides().data(), dtype, tensor);
}

// `tensor` itself where element i of its memory is element i of `like`'s, else a copy for which that holds.
// `like` is dense; both have the same sizes.
inline Tensor laid_out_as(const Tensor& tensor, const Tensor& like) {
  if (same_strides(tensor, like)) return tensor;
  Tensor copy = torch::stable::empty_like(like);
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(copy.get(), tensor.get(), /*non_blocking=*/0));
  return copy;
}

}  // namespace kernels
