// kernels::cdist_mma: torch's tensors in, the launchers of mma.cu out.
#include <algorithm>

#include "../common/stable_cuda.h"
#include "mma.h"

namespace kernels {
namespace {

MmaPoints points(const Tensor& x) {
  return {
      static_cast<const float*>(x.data_ptr()), x.size(0), x.size(1), x.stride(0), x.stride(1), x.stride(2)};
}

void check_inputs(const Tensor& x1, const Tensor& x2) {
  check(x1.dim() == 3 && x2.dim() == 3 && x1.size(2) == x2.size(2) &&
            (x1.size(0) == x2.size(0) || x1.size(0) == 1 || x2.size(0) == 1),
        "cdist_mma takes [batch or 1, n, d] and [batch or 1, m, d].");
  check(dtype_of(x1) == Dtype::kFloat32 && dtype_of(x2) == Dtype::kFloat32,
        "cdist_mma takes float32 tensors.");
  check(x2.is_cuda() && x1.get_device_index() == x2.get_device_index(),
        "x1 and x2 are on different devices.");
  check(x1.numel() > 0 && x2.numel() > 0 && x1.size(2) <= kMmaMaxDepth,
        "cdist_mma takes points of 1 to " + std::to_string(kMmaMaxDepth) +
            " coordinates, and at least one pair.");
}

// [b1, n, d], [b2, m, d] of any strides -> [batch, n, m]; a batch of 1 serves all.
Tensor forward(const Tensor& x1, const Tensor& x2) {
  check_inputs(x1, x2);
  const DeviceGuard guard(x1.get_device_index());
  check(mma_available(),
        "cdist_mma needs a Hopper GPU and a build for it: set TORCH_CUDA_ARCH_LIST=9.0a, or use triton_mma.");
  const int64_t batch = std::max(x1.size(0), x2.size(0)), n = x1.size(1), m = x2.size(1), d = x1.size(2);
  const int64_t depth = mma_padded(d, kMmaDepth), strips = mma_strips(batch, n, m);
  check(strips < INT32_MAX, "cdist_mma takes fewer than 2^31 strips of 16 rows and 128 columns.");
  const int64_t rows1 = x1.size(0) * mma_padded(n, kMmaPair), rows2 = x2.size(0) * mma_padded(m, kMmaTile);
  const int64_t floats1 = mma_operand_bytes(x1.size(0), n, d, kMmaPair) / 4;
  const int64_t floats2 = mma_operand_bytes(x2.size(0), m, d, kMmaTile) / 4;
  // One allocation of 4-byte parts; those that are read 16 bytes at a time come first, and are multiples of
  // it.
  const int64_t blocks = depth / kMmaDepth, parts = floats1 + floats2 + rows1 + rows2 + depth + blocks + 1;
  Tensor out = torch::stable::new_empty(x1, {batch, n, m});
  Tensor memory = torch::stable::new_empty(x1, {parts + 1 + strips});
  float* next = static_cast<float*>(memory.data_ptr());
  const auto take = [&](int64_t floats) { return std::exchange(next, next + floats); };
  const MmaScratch scratch{take(floats1), take(floats2), take(rows1), take(rows2),
                           take(depth),   take(blocks),  take(1)};
  check_launch(cdist_mma(points(x1), points(x2), scratch, static_cast<float*>(out.data_ptr()),
                         reinterpret_cast<int*>(next), batch, d, current_stream(x1)),
               "cdist_mma");
  return out;
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) { m.def("cdist_mma(Tensor x1, Tensor x2) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) { m.impl("cdist_mma", TORCH_BOX(&forward)); }

}  // namespace
}  // namespace kernels
