// kernels::softmax_vector_backward, _online_, _cluster_, _ring_ and _tuned_: torch's tensors in, the
// launchers of backward.h out. Each takes the upstream gradient and the forward's output, of any strides,
// along the last dim; the result is contiguous.
#include "../common/stable_cuda.h"
#include "backward.h"
#include "row.h"
#include "rows.h"
#include "tuned.h"

namespace kernels::softmax {
namespace {

// Calls `launch(task)` and returns dx. `packed`: rows of the gradient may not lie apart.
template <typename Launch>
Tensor launched(const Tensor& grad, const Tensor& y, const char* name, Launch&& launch, bool packed = false) {
  check(same_sizes(grad, y) && dtype_of(grad) == dtype_of(y), "grad and y differ in shape or dtype.");
  check(grad.is_cuda() && grad.get_device_index() == y.get_device_index(),
        "grad and y are on different devices.");
  const OnDeviceOf guard(y);
  const Tensor even = with_even_rows(grad, packed), dense = on_boundary(with_even_rows(y, /*packed=*/true));
  Tensor dx = empty_contiguous(y);
  if (y.numel() == 0) return dx;
  const int64_t cols = cols_of(y);
  const GradTask task{{even.data_ptr(), dx.data_ptr(), y.numel() / cols, cols, row_stride(even, cols),
                       dtype_of(y), current_stream(y)},
                      dense.data_ptr()};
  check_launch(launch(task), name);
  return dx;
}

cudaError_t in_ring(const GradTask& task, const Tensor& y, int team) {
  const Ring ring = ring_for(task, team);
  const int64_t bytes = scratch_bytes(ring, task.g_to_dx.rows);
  if (bytes == 0) return ring_backward(task, ring, nullptr);
  const Tensor scratch = empty_bytes(y, bytes);
  return ring_backward(task, ring, scratch.data_ptr());
}

Tensor vector(const Tensor& grad, const Tensor& y) {
  return launched(grad, y, "softmax_vector_backward", vector_backward);
}

Tensor online(const Tensor& grad, const Tensor& y) {
  return launched(grad, y, "softmax_online_backward", online_backward);
}

Tensor cluster(const Tensor& grad, const Tensor& y, int64_t blocks, int64_t threads) {
  return launched(grad, y, "softmax_cluster_backward", [&](const GradTask& task) {
    return cluster_backward(task, static_cast<int>(blocks), static_cast<int>(threads));
  });
}

Tensor ring(const Tensor& grad, const Tensor& y, int64_t team) {
  return launched(grad, y, "softmax_ring_backward",
                  [&](const GradTask& task) { return in_ring(task, y, static_cast<int>(team)); });
}

cudaError_t tuned_rows(const GradTask& task, const Tensor& y) {
  const Task& rows = task.g_to_dx;
  switch (design_for(task)) {
    case Design::kVector:
      return vector_backward(task);
    case Design::kCluster:
      return cluster_backward(task, 0, 0);
    case Design::kRing:
      return in_ring(task, y, 0);
    case Design::kOnline:
      return online_backward(task);
    default:
      return softmax_row_backward(rows.x, task.y, rows.y, rows.rows, rows.cols, rows.dtype, rows.stream);
  }
}

Tensor tuned(const Tensor& grad, const Tensor& y) {
  return launched(
      grad, y, "softmax_tuned_backward", [&](const GradTask& task) { return tuned_rows(task, y); },
      /*packed=*/dtype_of(y) == Dtype::kFloat64);
}

STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("softmax_vector_backward(Tensor grad, Tensor y) -> Tensor");
  m.def("softmax_online_backward(Tensor grad, Tensor y) -> Tensor");
  m.def("softmax_cluster_backward(Tensor grad, Tensor y, int blocks, int threads) -> Tensor");
  m.def("softmax_ring_backward(Tensor grad, Tensor y, int team) -> Tensor");
  m.def("softmax_tuned_backward(Tensor grad, Tensor y) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("softmax_vector_backward", TORCH_BOX(&vector));
  m.impl("softmax_online_backward", TORCH_BOX(&online));
  m.impl("softmax_cluster_backward", TORCH_BOX(&cluster));
  m.impl("softmax_ring_backward", TORCH_BOX(&ring));
  m.impl("softmax_tuned_backward", TORCH_BOX(&tuned));
}

}  // namespace
}  // namespace kernels::softmax
