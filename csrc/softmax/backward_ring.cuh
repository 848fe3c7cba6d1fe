// The backward in a ring: a stage holds a block's slices of g and y of one row. They are read for their dot
// product, and again when the team has summed those.
#pragma once

#include "backward.cuh"
#include "ring.cuh"

namespace kernels::softmax {

// What a block has of a row.
template <typename T, bool kAligned>
struct GradSlice {
  Slice<T, kAligned> g, y;

  template <int kCount>
  __device__ void read(int first, int step, uint4 (&g_bits)[kCount], uint4 (&y_bits)[kCount]) const {
    g.read(first, step, uint4{}, g_bits);
    y.read(first, step, uint4{}, y_bits);
  }
};

template <typename T, bool kAligned>
struct GradSlices : Share {
  using All = GradRows<T>;
  All all;
  Rows<T> y_to_dx;

  __device__ GradSlices(const All& all, const Ring& ring, unsigned char* memory)
      : Share(ring, memory, all.g_to_dx.rows), all(all), y_to_dx(all.g_to_dx) {
    y_to_dx.x = all.y;
    y_to_dx.stride = y_to_dx.cols;
  }

  // Vectors of shared memory that a stage takes.
  __host__ __device__ static constexpr int room(int piece) { return 2 * Slice<T, kAligned>::room(piece); }

  __device__ GradSlice<T, kAligned> at(const Turn& turn) const {
    uint4* stage = memory + turn.stage.index * room(ring.piece);
    return {{Row<T, kAligned>(all.g_to_dx, turn.row), *this, turn.piece, stage},
            {Row<T, kAligned>(y_to_dx, turn.row), *this, turn.piece, stage + room(ring.piece) / 2}};
  }
#if __CUDA_ARCH__ >= 900
  __device__ void fetch(const Turn& turn, Barrier& full) const {
    const auto slice = at(turn);
    const Piece g = slice.g.piece(), y = slice.y.piece();
    full.arrive_and_expect(g.bytes + y.bytes);
    g.fetch(slice.g.memory, full);
    y.fetch(slice.y.memory, full);
  }
#endif
  // A pair under a largest element of 0, which the ring's way to join pairs only adds.
  template <int kThreads>
  __device__ Partial reduce(const Turn& turn) const {
    constexpr int kBatch = 2;
    const auto slice = at(turn);
    Partial mine{0, 0};
    for (int v = slice.g.begin + threadIdx.x; v < slice.g.end; v += kBatch * kThreads) {
      uint4 g[kBatch], y[kBatch];
      slice.read(v, kThreads, g, y);
      mine.sum += dot<T>(g, y);
    }
    return mine;
  }
  template <int kThreads>
  __device__ void write(const Turn& turn, const Partial& whole) const {
    constexpr int kBatch = 2;
    const auto slice = at(turn);
    for (int v = slice.g.begin + threadIdx.x; v < slice.g.end; v += kBatch * kThreads) {
      uint4 g[kBatch], y[kBatch];
      slice.read(v, kThreads, g, y);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int at = v + b * kThreads;
        if (at < slice.g.end) store_gradient(slice.g.row, at, g[b], y[b], whole.sum);
      }
    }
  }
};

}  // namespace kernels::softmax
