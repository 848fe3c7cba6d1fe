// The forward in a ring: a slice is read for its largest element and its sum, and read again to be written.
#pragma once

#include "ring.cuh"

namespace kernels::softmax {

// The pair of this thread's part of a slice: the largest so far, and the sum kept under it.
template <int kThreads, typename T, bool kAligned>
__device__ __forceinline__ Partial reduce_slice(const Slice<T, kAligned>& slice) {
  constexpr int kV = kPerVector<T>, kBatch = 16 / kV;
  Partial mine{-INFINITY, 0};
  for (int v = slice.begin + threadIdx.x; v < slice.end; v += kBatch * kThreads) {
    uint4 bits[kBatch];
    slice.read(v, kThreads, nothing<T>(), bits);
    float values[kBatch][kV], largest = mine.largest;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      unpack<T>(bits[b], values[b]);
#pragma unroll
      for (float value : values[b]) largest = fmaxf(largest, value);
    }
    mine = {largest, rescaled(mine, largest)};
    const Power power(largest);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (float value : values[b]) mine.sum += power(value);
    }
  }
  return mine;
}

template <int kThreads, typename T, bool kAligned>
__device__ __forceinline__ void write_slice(const Slice<T, kAligned>& slice, const Partial& whole) {
  constexpr int kBatch = 4;
  const Power power(whole.largest);
  const float scale = 1 / whole.sum;
  for (int v = slice.begin + threadIdx.x; v < slice.end; v += kBatch * kThreads) {
    uint4 bits[kBatch];
    slice.read(v, kThreads, nothing<T>(), bits);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (v + b * kThreads >= slice.end) continue;
      float values[kPerVector<T>];
      unpack<T>(bits[b], values);
#pragma unroll
      for (float& value : values) value = power(value) * scale;
      slice.row.store(v + b * kThreads, values);
    }
  }
}

template <typename T, bool kAligned>
struct ForwardSlices : Share {
  using All = Rows<T>;
  All all;

  __device__ ForwardSlices(const All& all, const Ring& ring, unsigned char* memory)
      : Share(ring, memory, all.rows), all(all) {}

  // Vectors of shared memory that a stage takes.
  __host__ __device__ static constexpr int room(int slice) { return Slice<T, kAligned>::room(slice); }

  __device__ Slice<T, kAligned> at(const Turn& turn) const {
    return {Row<T, kAligned>(all, turn.row), *this, memory + turn.stage * room(ring.slice)};
  }
#if __CUDA_ARCH__ >= 900
  __device__ void fetch(const Turn& turn, Barrier& full) const {
    const auto slice = at(turn);
    fetch_slice(slice.row, slice.begin, slice.end, slice.memory, full);
  }
#endif
  template <int kThreads>
  __device__ Partial reduce(const Turn& turn) const {
    return reduce_slice<kThreads>(at(turn));
  }
  template <int kThreads>
  __device__ void write(const Turn& turn, const Partial& whole) const {
    write_slice<kThreads>(at(turn), whole);
  }
};

}  // namespace kernels::softmax
