// A block's part of a row in shared memory, for any start of the row: what the forward does with it.
#pragma once

#include "power.cuh"
#include "slice.cuh"

namespace kernels::softmax {

constexpr int kLine = 8;  // vectors of 128 bytes, which memory takes as one

template <typename T>
struct PairOf {
  using type = __nv_bfloat162;
};
template <>
struct PairOf<__half> {
  using type = __half2;
};

// The largest element of some vectors, NaN ignored. Half types are compared in pairs, before they are
// widened.
template <typename T, int kCount>
__device__ __forceinline__ float largest_of(const uint4 (&bits)[kCount]) {
  if constexpr (std::is_same_v<T, float>) {
    float most = -INFINITY;
#pragma unroll
    for (const uint4& vector : bits) {
      float values[4];
      unpack<T>(vector, values);
      most = fmaxf(most, fmaxf(fmaxf(values[0], values[1]), fmaxf(values[2], values[3])));
    }
    return most;
  } else {
    using Pair = typename PairOf<T>::type;
    const uint32_t none = nothing<T>().x;
    Pair most = reinterpret_cast<const Pair&>(none);
#pragma unroll
    for (const uint4& vector : bits) {
      const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (const uint32_t& word : words) most = __hmax2(most, reinterpret_cast<const Pair&>(word));
    }
    return fmaxf(convert<float>(most.x), convert<float>(most.y));
  }
}

// What this thread wrote to shared memory comes before what the copy engine will write there.
__device__ __forceinline__ void before_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Part `part` of the row, `slice` vectors (a multiple of kLine) of those that its output lies in, counted
// from a 128-byte boundary on, so that a warp writes whole lines. `count` of them lie before the row's end,
// and those from `lo` to `hi` - 1 are whole. Where the input is shifted against the output (kShifted) a
// vector is put together from two, and memory holds one more; otherwise the elements of the vectors at the
// row's ends that are not the row's are made -inf in memory, and nobody has to ask for them.
template <typename T, bool kShifted>
struct Held {
  static constexpr int kV = kPerVector<T>;

  Row<T, false> row;
  uint4* memory;
  int base;  // of the row's vectors, the first here; negative where the line starts before the row
  int count, lo, hi;

  __device__ Held(const Row<T, false>& row, uint4* memory, int part, int slice) : row(row), memory(memory) {
    const auto start = reinterpret_cast<uintptr_t>(row.y) / 16;
    base = part * slice - static_cast<int>(start % kLine);
    count = max(0, min(row.vectors() - base, slice));
    lo = min(count, max(0, (row.lead ? 1 : 0) - base));
    hi = max(lo, min(count, static_cast<int>((row.cols + row.lead) / kV) - base));
  }

  // Vectors of memory that a slice takes.
  HOST_DEVICE static constexpr int room(int slice) { return slice + (kShifted ? kLine : 0); }

  __device__ uint4* output() const { return reinterpret_cast<uint4*>(row.y - row.lead) + base; }
  __device__ Piece piece() const { return {row, max(base, 0), base + count}; }
  __device__ uint4* piece_to() const { return memory + max(-base, 0); }

#if __CUDA_ARCH__ >= 900
  __device__ void fetch(Barrier& full) const {
    const Piece all = piece();
    full.arrive_and_expect(all.bytes);
    all.fetch(piece_to(), full);
  }
#endif

  // Calls `act(i)` for those of this thread's vectors that lie only partly in the row.
  template <int kThreads, typename Act>
  __device__ __forceinline__ void at_ends(Act&& act) const {
    const int thread = threadIdx.x;
    if (thread < lo) act(thread);
    if (hi < count && thread == hi % kThreads) act(hi);
  }

  template <int kCount, int kStep>
  __device__ __forceinline__ void read(int first, uint4 (&bits)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) bits[i] = memory[first + i * kStep];
    if constexpr (kShifted) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        bits[i] = straddling(bits[i], memory[first + i * kStep + 1], row.shift);
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int at = first + i * kStep;
        if (at < lo || at >= hi) row.mask(base + at, bits[i], nothing<T>());
      }
    }
  }

  // Joins kCount vectors to a pair.
  template <int kCount, int kThreads>
  __device__ __forceinline__ void add(int first, Partial& mine) const {
    uint4 bits[kCount];
    read<kCount, kThreads>(first, bits);
    const float largest = fmaxf(mine.largest, largest_of<T>(bits));
    mine = {largest, rescaled(mine, largest)};
    const Power power(largest);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float values[kV];
      unpack<T>(bits[i], values);
#pragma unroll
      for (float value : values) mine.sum += power(value);
    }
  }

  // The pair of this thread's vectors.
  template <int kThreads, int kBatch>
  __device__ __forceinline__ Partial reduced() const {
    if constexpr (!kShifted) {
      at_ends<kThreads>([&](int i) {
        row.mask(base + i, memory[i], nothing<T>());
        before_copies();
      });
    }
    Partial mine{-INFINITY, 0};
    int i = threadIdx.x;
    for (; i + (kBatch - 1) * kThreads < count; i += kBatch * kThreads) add<kBatch, kThreads>(i, mine);
    for (; i < count; i += kThreads) add<1, kThreads>(i, mine);
    return mine;
  }

  template <int kCount, int kThreads>
  __device__ __forceinline__ void powers(int first, const Power& power, float scale,
                                         float (&values)[kCount][kV]) const {
    uint4 bits[kCount];
    read<kCount, kThreads>(first, bits);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      unpack<T>(bits[i], values[i]);
#pragma unroll
      for (float& value : values[i]) value = power(value) * scale;
    }
  }

  // kCount whole vectors.
  template <int kCount, int kThreads>
  __device__ __forceinline__ void put(int first, const Power& power, float scale) const {
    float values[kCount][kV];
    powers<kCount, kThreads>(first, power, scale, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) output()[first + i * kThreads] = pack<T>(values[i]);
  }

  // Writes the softmax of this thread's vectors.
  template <int kThreads, int kBatch>
  __device__ __forceinline__ void write(const Partial& whole) const {
    const Power power(whole.largest);
    const float scale = 1 / whole.sum;
    int i = threadIdx.x;
    if (i < lo) i += kThreads;
    for (; i + (kBatch - 1) * kThreads < hi; i += kBatch * kThreads) put<kBatch, kThreads>(i, power, scale);
    for (; i < hi; i += kThreads) put<1, kThreads>(i, power, scale);
    at_ends<kThreads>([&](int i) {
      float values[1][kV];
      powers<1, kThreads>(i, power, scale, values);
      row.store(base + i, values[0]);
    });
  }
};

}  // namespace kernels::softmax
