// Which narrow columns are read as rows of words, and by what blocks.
#include "strided_words.cuh"

#include <algorithm>
#include <numeric>

#include "current_device.h"
#include "shared_limit.h"

namespace kernels::softmax {
namespace {

// Threads, words of each, and blocks that an SM holds: registers are for 32768 words of an SM.
template <int kThreads, int kWords, int kResident>
struct Block {
  static constexpr int64_t words(int slots) { return int64_t{kThreads / slots * slots} * kWords; }
  using Plan = WordPlan<kThreads, kWords, kResident>;
};
using Smallest = Block<128, 64, 4>;
using Small = Block<256, 64, 2>;
using Large = Block<512, 36, 2>;
using Largest = Block<512, 76, 1>;

// Words after which columns repeat, and words of all that an outer index has.
int slots_of(const Strided& task) {
  const int64_t per = 4 / task.item_bytes();
  return static_cast<int>(task.inner / std::gcd(task.inner, per));
}

int64_t words_of(const Strided& task) {
  const int64_t per = 4 / task.item_bytes();
  return (task.length * task.inner + 2 * (per - 1)) / per;
}

int64_t pieces_of(const Strided& task) {
  return ceil_div(task.length * task.inner * task.item_bytes() + 16 - task.item_bytes(), 16);
}

template <typename T, typename P>
cudaError_t launch(const Strided& task) {
  auto* kernel = &words_kernel<T, P>;
  const int bytes = static_cast<int>(pieces_of(task)) * 16;
  constexpr int kOwn = P::kThreads * (Word<T>::kCount * sizeof(Partial) + sizeof(Whole<T>)) + kReservedBytes;
  const int room = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const int resident = std::clamp(room / (bytes + kOwn), 1, P::kResident);
  const int64_t blocks = std::min<int64_t>(
      task.outer, device_attribute(cudaDevAttrMultiProcessorCount) * static_cast<int64_t>(resident));
  const int slots = slots_of(task);
  const Narrow<T> all{static_cast<const T*>(task.x),
                      static_cast<T*>(task.y),
                      task.outer,
                      task.stride,
                      static_cast<int>(task.length * task.inner),
                      static_cast<int>(task.inner),
                      P::kThreads / slots * slots};
  return with_shared_bytes(kernel, bytes, [&] {
    kernel<<<static_cast<unsigned>(blocks), P::kThreads, bytes, task.stream>>>(all);
    return cudaGetLastError();
  });
}

template <typename T>
cudaError_t by_block(const Strided& task) {
  const int64_t words = words_of(task);
  const int slots = slots_of(task);
  if (words <= Smallest::words(slots)) return launch<T, Smallest::Plan>(task);
  if (words <= Small::words(slots)) return launch<T, Small::Plan>(task);
  if (words <= Large::words(slots)) return launch<T, Large::Plan>(task);
  return launch<T, Largest::Plan>(task);
}

}  // namespace

bool fits_words(const Strided& task) {
  // Words of x and of y have to begin at the same elements.
  const auto x = reinterpret_cast<uintptr_t>(task.x), y = reinterpret_cast<uintptr_t>(task.y);
  const int64_t apart = task.stride - task.length * task.inner;
  if ((x ^ y) % 4 != 0 || apart * task.item_bytes() % 4 != 0) return false;
  if (!task.dense() || task.inner > kMostWordColumns || task.outer > 2147483647) return false;
  const int own = 512 * 32 + kReservedBytes;
  return words_of(task) <= Largest::words(slots_of(task)) &&
         pieces_of(task) * 16 + own <= device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

cudaError_t strided_words(const Strided& task) {
  if (!fits_words(task)) return cudaErrorInvalidConfiguration;
  return with_up_to_float(task.dtype,
                          [&](auto type) { return by_block<typename decltype(type)::type>(task); });
}

}  // namespace kernels::softmax
