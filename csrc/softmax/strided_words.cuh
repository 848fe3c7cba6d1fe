// Softmax down narrow columns whose rows start anywhere, by blocks that stay. What an outer index has is one
// row, which comes into shared memory in 16-byte pieces; a thread takes words of 4 bytes from there, on the
// boundaries that they have in memory, and every time of the same one or two columns. The next row comes
// meanwhile.
#pragma once

#include "packed.cuh"
#include "strided.cuh"

namespace kernels::softmax {

// Rows of x and of y have the same boundaries of 4 bytes.
template <typename T>
struct Narrow {
  const T* x;
  T* y;
  int64_t rows, stride;
  int elements, columns;  // of a row, and softmaxes of it
  int active;             // threads that take part: after their words columns repeat
};

template <int kThreadsOf, int kWordsOf, int kResidentOf>
struct WordPlan {
  static constexpr int kThreads = kThreadsOf, kWords = kWordsOf, kResident = kResidentOf;
  static_assert(kWords % 4 == 0, "Four words at once.");
};

__device__ __forceinline__ uint32_t word_at(unsigned address, bool there, uint32_t none) {
  uint32_t bits = none;
  asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there ld.shared.u32 %0, [%1];\n}"
               : "+r"(bits)
               : "r"(address), "r"(static_cast<int>(there)));
  return bits;
}

// No branch, so that powers of many words are computed at once.
__device__ __forceinline__ void store_word(void* to, uint32_t bits, bool there) {
  asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\n@there st.global.b32 [%0], %1;\n}" ::"l"(to),
               "r"(bits), "r"(static_cast<int>(there))
               : "memory");
}

// Asks for all pieces that hold some of a row.
template <int kThreads, typename T>
__device__ __forceinline__ void ask_for(const Narrow<T>& all, int64_t row, uint4* shared) {
  if (row < all.rows) {
    const auto start = reinterpret_cast<uintptr_t>(all.x + row * all.stride);
    const int pieces = static_cast<int>((start % 16 + all.elements * sizeof(T) + 15) / 16);
    for (int p = threadIdx.x; p < pieces; p += kThreads) {
      copy_later(shared + p, reinterpret_cast<const void*>(start / 16 * 16 + p * 16), true);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// What came along before the first and after the last element of a row becomes -inf, by those who asked for
// it.
template <int kThreads, typename T>
__device__ __forceinline__ void cover_ends(const Narrow<T>& all, int64_t row, T* shared) {
  const int before = static_cast<int>(reinterpret_cast<uintptr_t>(all.x + row * all.stride) % 16 / sizeof(T));
  const int after = before + all.elements;
  const T none = convert<T>(-INFINITY);
  if (threadIdx.x == 0 && before % 2) shared[before - 1] = none;
  if (threadIdx.x == after * sizeof(T) / 16 % kThreads && after % 2) shared[after] = none;
}

// A thread's words of a row, active words apart.
template <typename T>
struct Share {
  unsigned at;      // of the first in shared memory
  T* to;            // and in y
  int element;      // its first; -1 where the row begins with a half of a word
  int words, last;  // how many, and the one of which only the first half belongs to the row
  bool leads;       // only the other half of the first does

  __device__ Share(const Narrow<T>& all, int64_t row, unsigned shared) {
    constexpr int kPer = Word<T>::kCount;
    const auto start = reinterpret_cast<uintptr_t>(all.x + row * all.stride);
    const int odd = start / sizeof(T) % kPer, thread = threadIdx.x;
    const int all_words = (all.elements + odd + kPer - 1) / kPer;
    element = thread * kPer - odd;
    words =
        thread < all.active && thread < all_words ? (all_words - thread + all.active - 1) / all.active : 0;
    const bool ends =
        (all.elements + odd) % kPer && words > 0 && thread + (words - 1) * all.active == all_words - 1;
    last = ends ? words - 1 : -1;
    leads = odd && thread == 0;
    at = shared + static_cast<unsigned>(start % 16) + element * static_cast<int>(sizeof(T));
    to = all.y + row * all.elements + element;
  }
};

// Calls each(w) for w of 0 to kWords - 1, while there may be words.
template <int kWords, typename Each>
__device__ __forceinline__ void over_words(int most, Each each) {
#pragma unroll
  for (int from = 0; from < kWords; from += 4) {
    if (from < most) {
#pragma unroll
      for (int w = from; w < from + 4; ++w) each(w);
    }
  }
}

// grid: as many blocks as are at work at once.
template <typename T, typename P>
__global__ void __launch_bounds__(P::kThreads, P::kResident)
    words_kernel(const __grid_constant__ Narrow<T> all) {
  constexpr int kPer = Word<T>::kCount;
  extern __shared__ uint4 shared[];
  __shared__ Partial parts[P::kThreads * kPer];
  __shared__ Whole<T> wholes[P::kThreads];
  const auto base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int columns = all.columns, most = (all.elements / kPer + 2) / all.active + 1;

  ask_for<P::kThreads>(all, blockIdx.x, shared);
  for (int64_t row = blockIdx.x; row < all.rows; row += gridDim.x) {
    const Share<T> mine(all, row, base);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    if constexpr (kPer > 1) cover_ends<P::kThreads>(all, row, reinterpret_cast<T*>(shared));
    __syncthreads();
    uint32_t words[P::kWords], larger_word = nothing<T>().x;
    unsigned at = mine.at;
    over_words<P::kWords>(most, [&](int w) {
      words[w] = word_at(at, w < mine.words, nothing<T>().x);
      larger_word = larger<T>(larger_word, words[w]);
      at += all.active * 4;
    });
    __syncthreads();
    ask_for<P::kThreads>(all, row + gridDim.x, shared);

    float largest[kPer], sums[kPer] = {};
    Word<T>::widen(larger_word, 0, largest);
    Curve<T> curves[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) curves[j] = Curve<T>(largest[j]);
    over_words<P::kWords>(most, [&](int w) {
      float values[kPer];
      Word<T>::widen(words[w], 0, values);
#pragma unroll
      for (int j = 0; j < kPer; ++j) sums[j] += curves[j](values[j]);
    });
    // What lies before the first element, once around, is of the last columns.
    int entry[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      entry[j] = mine.element + j < 0 ? all.active * kPer - 1 : mine.element + j;
      if (threadIdx.x < all.active) parts[entry[j]] = {largest[j], sums[j]};
    }
    __syncthreads();
    combine_columns(parts, columns, all.active * kPer / columns,
                    [&](int c, const Partial& pair, int lane, int) {
                      if (lane == 0) wholes[c] = {Curve<T>(pair.largest), 1 / pair.sum};
                    });
    __syncthreads();
    Whole<T> its[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) its[j] = wholes[entry[j] % columns];
    const uint32_t zero = blockDim.y - 1;
    const Share<T> ours(all, row + zero,
                        base);  // anew: kept meanwhile, it would take registers that words need
    T* to = ours.to;
    uint32_t last = 0;
    over_words<P::kWords>(most, [&](int w) {
      float values[kPer];
      Word<T>::widen(words[w], zero, values);
#pragma unroll
      for (int j = 0; j < kPer; ++j) values[j] = its[j].curve(values[j]) * its[j].scale;
      const uint32_t bits = Word<T>::narrow(values);
      store_word(to, bits, w < ours.words && w != ours.last && !(w == 0 && ours.leads));
      if constexpr (kPer > 1) {
        if (w == 0 && ours.leads) to[1] = convert<T>(values[1]);
        if (w == ours.last) last = bits;
      }
      to += all.active * kPer;
    });
    if constexpr (kPer > 1) {
      if (ours.last >= 0)
        *reinterpret_cast<unsigned short*>(ours.to + ours.last * all.active * kPer) = last & 0xffff;
    }
  }
}

}  // namespace kernels::softmax
