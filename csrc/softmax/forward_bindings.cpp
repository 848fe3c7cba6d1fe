// kernels::softmax_vector, _online, _cluster, _staged, _ring and _tuned: torch's tensors in, the
// launchers of forward.h out. Each works along the last dim of a tensor of any strides; its output is
// contiguous.
#include "../common/stable_cuda.h"
#include "forward.h"
#include "row.h"
#include "rows.h"
#include "tuned.h"

namespace kernels::softmax {
namespace {

// Calls `launch(task)` and returns the output. `packed`: rows may not lie apart.
template <typename Launch>
Tensor launched(const Tensor& x, const char* name, Launch&& launch, bool packed = false) {
  const DeviceGuard guard(x.get_device_index());
  const Tensor even = with_even_rows(x, packed);
  Tensor y = empty_contiguous(x);
  if (x.numel() == 0) return y;
  const int64_t cols = cols_of(x);
  const Task task{even.data_ptr(),        y.data_ptr(), x.numel() / cols, cols,
                  row_stride(even, cols), dtype_of(x),  current_stream(x)};
  check_launch(launch(task), name);
  return y;
}

cudaError_t in_ring(const Task& task, const Tensor& x, int team) {
  const Ring ring = ring_for(task, team);
  const int64_t bytes = scratch_bytes(ring, task.rows);
  if (bytes == 0) return ring_rows(task, ring, nullptr);
  const Tensor scratch = empty_bytes(x, bytes);
  return ring_rows(task, ring, scratch.data_ptr());
}

Tensor vector(const Tensor& x) { return launched(x, "softmax_vector", vector_rows); }
Tensor online(const Tensor& x) { return launched(x, "softmax_online", online_rows); }

Tensor ring(const Tensor& x, int64_t team) {
  return launched(x, "softmax_ring",
                  [&](const Task& task) { return in_ring(task, x, static_cast<int>(team)); });
}

Tensor cluster(const Tensor& x, int64_t blocks, int64_t threads) {
  return launched(x, "softmax_cluster", [&](const Task& task) {
    return cluster_rows(task, static_cast<int>(blocks), static_cast<int>(threads));
  });
}

Tensor staged(const Tensor& x, int64_t cluster) {
  return launched(x, "softmax_staged", [&](const Task& task) {
    return staged_rows(task, staged_for(task, static_cast<int>(cluster)));
  });
}

cudaError_t tuned_rows(const Task& task, const Tensor& x) {
  switch (design_for(task)) {
    case Design::kVector:
      return vector_rows(task);
    case Design::kCluster:
      return cluster_rows(task, 1, 1024);
    case Design::kStaged:
      return staged_rows(task, staged_for(task, 0));
    case Design::kRing:
      return in_ring(task, x, 0);
    case Design::kOnline:
      return online_rows(task);
    default:
      return softmax_row(task.x, task.y, task.rows, task.cols, task.dtype, task.stream);
  }
}

Tensor tuned(const Tensor& x) {
  return launched(
      x, "softmax_tuned", [&](const Task& task) { return tuned_rows(task, x); },
      /*packed=*/dtype_of(x) == Dtype::kFloat64);
}

// The first of two is what autograd knows; ..._forward is for calls without a gradient, and has no Python in
// its way.
STABLE_TORCH_LIBRARY_FRAGMENT(kernels, m) {
  m.def("softmax_vector(Tensor x) -> Tensor");
  m.def("softmax_vector_forward(Tensor x) -> Tensor");
  m.def("softmax_online(Tensor x) -> Tensor");
  m.def("softmax_online_forward(Tensor x) -> Tensor");
  m.def("softmax_cluster(Tensor x, int blocks, int threads) -> Tensor");
  m.def("softmax_cluster_forward(Tensor x, int blocks, int threads) -> Tensor");
  m.def("softmax_ring(Tensor x, int team) -> Tensor");
  m.def("softmax_ring_forward(Tensor x, int team) -> Tensor");
  m.def("softmax_tuned(Tensor x) -> Tensor");
  m.def("softmax_tuned_forward(Tensor x) -> Tensor");
  m.def("softmax_staged(Tensor x, int cluster) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(kernels, CUDA, m) {
  m.impl("softmax_vector", TORCH_BOX(&vector));
  m.impl("softmax_vector_forward", TORCH_BOX(&vector));
  m.impl("softmax_online", TORCH_BOX(&online));
  m.impl("softmax_online_forward", TORCH_BOX(&online));
  m.impl("softmax_cluster", TORCH_BOX(&cluster));
  m.impl("softmax_cluster_forward", TORCH_BOX(&cluster));
  m.impl("softmax_ring", TORCH_BOX(&ring));
  m.impl("softmax_ring_forward", TORCH_BOX(&ring));
  m.impl("softmax_tuned", TORCH_BOX(&tuned));
  m.impl("softmax_tuned_forward", TORCH_BOX(&tuned));
  m.impl("softmax_staged", TORCH_BOX(&staged));
}

}  // namespace
}  // namespace kernels::softmax
