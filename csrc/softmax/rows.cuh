// From a task, whose dtype is a value, to rows of a type.
#pragma once

#include "forward.h"
#include "vector.cuh"

namespace kernels::softmax {

// Calls `launch(Rows<T>)` with the T that the task's dtype names; others are an invalid value.
template <typename Launch>
cudaError_t with_rows(const Task& task, Launch&& launch) {
  const auto typed = [&](auto type) {
    using T = typename decltype(type)::type;
    return launch(Rows<T>{static_cast<const T*>(task.x), static_cast<T*>(task.y), task.rows, task.cols,
                          task.stride, task.aligned()});
  };
  switch (task.dtype) {
    case Dtype::kFloat32:
      return typed(Type<float>{});
    case Dtype::kFloat16:
      return typed(Type<__half>{});
    case Dtype::kBfloat16:
      return typed(Type<__nv_bfloat16>{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace kernels::softmax
