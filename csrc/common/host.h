// The CPU's side of the dtypes: torch's header-only half types.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "stable.h"

namespace kernels {

struct HostTypes {
  using Half = c10::Half;
  using Bfloat16 = c10::BFloat16;
};

// Below this many elements waking other threads costs more than they save.
constexpr int64_t kParallelAbove = 32768;

// Calls `run(Type<T>{})` with the T that `dtype` names; integers are refused.
template <typename Run>
void with_floating(Dtype dtype, Run&& run) {
  switch (dtype) {
    case Dtype::kFloat64:
      return run(Type<double>{});
    case Dtype::kFloat32:
      return run(Type<float>{});
    case Dtype::kFloat16:
      return run(Type<c10::Half>{});
    case Dtype::kBfloat16:
      return run(Type<c10::BFloat16>{});
    default:
      check(false, "This kernel takes floating dtypes only.");
  }
}

// As with_floating, and integers too.
template <typename Run>
void with_any(Dtype dtype, Run&& run) {
  switch (dtype) {
    case Dtype::kInt64:
      return run(Type<int64_t>{});
    case Dtype::kInt32:
      return run(Type<int32_t>{});
    default:
      return with_floating(dtype, run);
  }
}

}  // namespace kernels
