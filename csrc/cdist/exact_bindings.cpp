// kernels::cdist_small, cdist_register and cdist_backward: torch's tensors in, the launchers of exact.h and
// backward.h out.
#include "../common/stable_cuda.h"
#include "backward.h"
#include "exact.h"

namespace kernels {
namespace {

bool broadcasts(int64_t size, int64_t to) { return size == to || size == 1; }

bool up_to_float(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat16;
}

// [outer, inner, n, d] and [outer, inner, m, d], contiguous; a batch dim of 1 stands for any size.
Batches batches_of(const Tensor& x1, const Tensor& x2, const std::string& name) {
  check(x1.dim() == 4 && x2.dim() == 4 && x1.size(3) == x2.size(3),
        name + " takes [outer, inner, n, d] and [outer, inner, m, d].");
  check(x1.is_contiguous() && x2.is_contiguous(), name + " takes contiguous tensors.");
  check(dtype_of(x1) == dtype_of(x2), name + " takes two tensors of one dtype.");
  check(up_to_float(dtype_of(x1)), name + " takes float32, bfloat16 and float16.");
  check(x2.is_cuda() && x2.get_device_index() == x1.get_device_index(),
        "x1 and x2 are on different devices.");
  Batches of;
  of.outer = x1.size(0) == 1 ? x2.size(0) : x1.size(0);
  of.inner = x1.size(1) == 1 ? x2.size(1) : x1.size(1);
  check(broadcasts(x1.size(0), of.outer) && broadcasts(x2.size(0), of.outer) &&
            broadcasts(x1.size(1), of.inner) && broadcasts(x2.size(1), of.inner),
        name + " takes batches that broadcast.");
  of.n = x1.size(2), of.m = x2.size(2), of.d = x1.size(3);
  const int64_t points1 = of.n * of.d, points2 = of.m * of.d;
  of.inner1 = x1.size(1) == 1 ? 0 : points1;
  of.inner2 = x2.size(1) == 1 ? 0 : points2;
  of.outer1 = x1.size(0) == 1 ? 0 : x1.size(1) * points1;
  of.outer2 = x2.size(0) == 1 ? 0 : x2.size(1) * points2;
  return of;
}

template <typename Launch>
Tensor forward(const Tensor& x1, const Tensor& x2, double p, const char* name, Launch launch) {
  const Batches batches = batches_of(x1, x2, name);
  check(p >= 0, std::string(name) + " takes a p that is not negative.");
  const DeviceGuard guard(x1.get_device_index());
  Tensor out = torch::stable::new_empty(x1, {batches.outer, batches.inner, batches.n, batches.m});
  check_launch(launch(Exact{x1.data_ptr(), x2.data_ptr(), out.data_ptr(), batches, p, dtype_of(x1),
                            current_stream(x1)}),
               name);
  return out;
}

Tensor small(const Tensor& x1, const Tensor& x2, double p) {
  return forward(x1, x2, p, "cdist_small", cdist_small);
}

Tensor by_register(const Tensor& x1, const Tensor& x2, double p, bool large) {
  return forward(x1, x2, p, "cdist_register",
                 [large](const Exact& call) { return cdist_register(call, large); });
}

BackwardDevice device_of(const Tensor& tensor) {
  BackwardDevice device{};
  const int index = tensor.get_device_index();
  check_launch(cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, index),
               "cdist_backward");
  check_launch(cudaDeviceGetAttribute(&device.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
               "cdist_backward");
  return device;
}

// grad and distance [batch, n, m], own and other [batch, n, d] and [batch, m, d], or the other way round if
// own points are not rows; all but grad float32 -> own's gradient.
Tensor backward(const Tensor& grad, const Tensor& own, const Tensor& other, const Tensor& distance, double p,
                bool own_is_rows, bool product) {
  const Tensor &rows = own_is_rows ? own : other, &columns = own_is_rows ? other : own;
  for (const Tensor* tensor : {&grad, &own, &other, &distance}) {
    check(tensor->dim() == 3 && tensor->is_contiguous() && tensor->is_cuda() &&
              tensor->get_device_index() == own.get_device_index() && tensor->size(0) == own.size(0),
          "cdist_backward takes contiguous tensors of three dims, of one batch and one device.");
    check(tensor == &grad ? up_to_float(dtype_of(grad)) : dtype_of(*tensor) == Dtype::kFloat32,
          "cdist_backward takes points and distances in float32, and a gradient up to it.");
  }
  check(own.size(2) == other.size(2) && same_sizes(grad, distance) && grad.size(1) == rows.size(1) &&
            grad.size(2) == columns.size(1),
        "cdist_backward takes sizes that belong together.");
  check(p > 0 && (p == 2 || !product), "cdist_backward takes p > 0, and p = 2 for the product form.");
  const DeviceGuard guard(own.get_device_index());
  Tensor out = torch::stable::empty_like(own);
  if (out.numel() == 0) return out;
  check(grad.numel() > 0, "cdist_backward takes at least one pair.");
  Backward call{grad.data_ptr(), static_cast<const float*>(distance.data_ptr()),
                static_cast<const float*>(own.data_ptr()), static_cast<const float*>(other.data_ptr()),
                static_cast<float*>(out.data_ptr())};
  call.own_is_rows = own_is_rows;
  call.batch = own.size(0), call.rows = grad.size(1), call.columns = grad.size(2), call.d = own.size(2);
  call.p = p, call.dtype = dtype_of(grad), call.stream = current_stream(own);
  call.device = device_of(own);
  call.splits = product ? product_splits(call) : difference_splits(call);
  Tensor partial = call.splits == 1 ? out : torch::stable::new_empty(own, {call.splits, out.numel()});
  call.partial = static_cast<float*>(partial.data_ptr());
  Tensor scratch = torch::stable::new_empty(own, {product ? product_scratch(call) : 0});
  call.scratch = static_cast<float*>(scratch.data_ptr());
  check_launch(product ? cdist_backward_product(call) : cdist_backward_difference(call), "cdist_backward");
  return out;
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("cdist_small(Tensor x1, Tensor x2, float p) -> Tensor");
  m.def("cdist_register(Tensor x1, Tensor x2, float p, bool large) -> Tensor");
  m.def(
      "cdist_backward(Tensor grad, Tensor own, Tensor other, Tensor distance, float p, bool own_is_rows, "
      "bool product) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("cdist_small", TORCH_BOX(&small));
  m.impl("cdist_register", TORCH_BOX(&by_register));
  m.impl("cdist_backward", TORCH_BOX(&backward));
}

}  // namespace
}  // namespace kernels
