// kernels::cdist_mma: torch's tensors in, the launchers of mma.cu out.
#include "../common/stable_cuda.h"
#include "mma.h"

namespace kernels {
namespace {

MmaPoints points(const Tensor& x) {
  return {
      static_cast<const float*>(x.data_ptr()), x.size(0), x.size(1), x.stride(0), x.stride(1), x.stride(2)};
}

void check_inputs(const Tensor& x1, const Tensor& x2, const Tensor& out, const Tensor& todo) {
  check(x1.dim() == 3 && x2.dim() == 3 && out.dim() == 3 && x1.size(2) == x2.size(2),
        "cdist_mma takes [batch, n, d], [batch, m, d] and [batch, n, m].");
  const int64_t batch = out.size(0), d = x1.size(2);
  check((x1.size(0) == 1 || x1.size(0) == batch) && (x2.size(0) == 1 || x2.size(0) == batch) &&
            out.size(1) == x1.size(1) && out.size(2) == x2.size(1),
        "cdist_mma: the output's sizes are not those of the inputs.");
  for (const Tensor* x : {&x1, &x2, &out}) {
    check(x->is_cuda() && dtype_of(*x) == Dtype::kFloat32 && x->get_device_index() == x1.get_device_index(),
          "cdist_mma takes float32 tensors on one CUDA device.");
  }
  check(out.is_contiguous() && todo.is_contiguous() && dtype_of(todo) == Dtype::kInt32,
        "cdist_mma writes a contiguous output and a contiguous int32 list.");
  check(out.numel() > 0 && 0 < d && d <= kMmaMaxDepth, "cdist_mma takes points of 1 to " +
                                                           std::to_string(kMmaMaxDepth) +
                                                           " coordinates, and at least one pair.");
  const int64_t strips = mma_strips(batch, x1.size(1), x2.size(1));
  check(strips < INT32_MAX && todo.numel() > strips,
        "cdist_mma: the list is too short, or longer than 2^31.");
}

// x1 [b1, n, d], x2 [b2, m, d] of any strides, b1 and b2 the output's batch or 1. Writes out [batch, n, m],
// NaN for near pairs, and todo: how many strips hold one, then their numbers.
void products(const Tensor& x1, const Tensor& x2, Tensor out, Tensor todo, double tau) {
  check_inputs(x1, x2, out, todo);
  const DeviceGuard guard(x1.get_device_index());
  check(mma_available(),
        "cdist_mma needs a Hopper GPU and a build for it: set TORCH_CUDA_ARCH_LIST=9.0a, or use triton_mma.");
  const int64_t d = x1.size(2), depth = mma_padded(d, kMmaDepth);
  const int64_t rows1 = x1.size(0) * mma_padded(x1.size(1), kMmaPair);
  const int64_t rows2 = x2.size(0) * mma_padded(x2.size(1), kMmaTile);
  const int64_t bytes1 = mma_operand_bytes(x1.size(0), x1.size(1), d, kMmaPair);
  const int64_t bytes2 = mma_operand_bytes(x2.size(0), x2.size(1), d, kMmaTile);
  // One allocation; all but the last three parts are multiples of 16 bytes.
  Tensor memory =
      torch::stable::new_empty(x1, {(bytes1 + bytes2) / 4 + rows1 + rows2 + depth + depth / kMmaDepth + 1});
  float* next = static_cast<float*>(memory.data_ptr());
  const auto take = [&](int64_t floats) { return std::exchange(next, next + floats); };
  const MmaScratch scratch{take(bytes1 / 4), take(bytes2 / 4),        take(rows1), take(rows2),
                           take(depth),      take(depth / kMmaDepth), take(1)};
  check_launch(cdist_mma(points(x1), points(x2), scratch, static_cast<float*>(out.data_ptr()),
                         static_cast<int*>(todo.data_ptr()), out.size(0), d, static_cast<float>(tau),
                         current_stream(x1)),
               "cdist_mma");
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("cdist_mma(Tensor x1, Tensor x2, Tensor(a!) out, Tensor(b!) todo, float tau) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) { m.impl("cdist_mma", TORCH_BOX(&products)); }

}  // namespace
}  // namespace kernels
