// The forward in a ring: a slice is read for its largest element and its sum, and read again to be written.
#pragma once

#include "held.cuh"
#include "ring.cuh"

namespace kernels::softmax {

// kShifted: the input lies between other 16-byte boundaries than the output.
template <typename T, bool kShifted>
struct ForwardSlices : Share {
  using All = Rows<T>;
  All all;

  __device__ ForwardSlices(const All& all, const Ring& ring, unsigned char* memory)
      : Share(ring, memory, all.rows), all(all) {}

  // Vectors of shared memory that a stage takes.
  __host__ __device__ static constexpr int room(int slice) { return Held<T, kShifted>::room(slice); }

  __device__ Held<T, kShifted> at(const Turn& turn) const {
    return {Row<T, false>(all, turn.row), memory + turn.stage * room(ring.slice), part, ring.slice};
  }
#if __CUDA_ARCH__ >= 900
  __device__ void fetch(const Turn& turn, Barrier& full) const { at(turn).fetch(full); }
#endif
  template <int kThreads>
  __device__ Partial reduce(const Held<T, kShifted>& slice) const {
    return slice.template reduced<kThreads, kBatch>();
  }
  template <int kThreads>
  __device__ void write(const Held<T, kShifted>& slice, const Partial& whole) const {
    slice.template write<kThreads, kBatch>(whole);
  }

 private:
  static constexpr int kBatch = 4;
};

}  // namespace kernels::softmax
