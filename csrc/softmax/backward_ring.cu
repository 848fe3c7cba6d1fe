// How deep the rings of the backward are.
#include "backward_ring.cuh"

namespace kernels::softmax {
namespace {

// A shifted slice takes more instructions an element, so more threads.
constexpr int kThreads = 512, kThreadsUnaligned = 768;
// Stages that a block of a team should hold: enough to be three rows ahead, as the forward's in float32.
constexpr int64_t kDeep = 5;

}  // namespace

Ring ring_for(const GradTask& task, int team) {
  constexpr int kControlBytes = sizeof(Control<kThreadsUnaligned / kWarp>);
  const Task& rows = task.g_to_dx;
  return ring_of({rows.rows, rows.vectors(), rows.aligned() ? 0 : 1, 2, kDeep, kControlBytes}, team);
}

cudaError_t ring_backward(const GradTask& task, const Ring& ring, void* scratch) {
  if (ring.team == 0) return cudaErrorInvalidConfiguration;
  return with_grad_rows(task, [&](const auto& all) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(all.y)>>;
    const auto rows = all.g_to_dx.rows;
    const auto stream = task.g_to_dx.stream;
    return all.g_to_dx.aligned
               ? launch_ring<GradSlices<T, true>, kThreads>(all, rows, ring, scratch, stream)
               : launch_ring<GradSlices<T, false>, kThreadsUnaligned>(all, rows, ring, scratch, stream);
  });
}

}  // namespace kernels::softmax
