// The backward in a ring: a stage holds a piece of a block's slices of g and y of one row. It is read for the
// dot product, and again when the team has summed those.
#pragma once

#include "backward.cuh"
#include "ring.cuh"

namespace kernels::softmax {

constexpr int kLineVectors = 8;  // 128 bytes, which memory takes as one

// Vectors of a row of one tensor, counted from the line that it starts in.
inline int64_t vectors_on_lines(const Task& rows) {
  const auto bits =
      reinterpret_cast<uintptr_t>(rows.y) | static_cast<uintptr_t>(rows.cols * rows.item_bytes());
  return rows.vectors() + (bits % (16 * kLineVectors) == 0 ? 0 : kLineVectors - 1);
}

// A piece of what a block has of a row, cut where the output has lines, so that warps write whole ones.
// Both tensors' lines stay lines in shared memory.
template <typename T, bool kAligned>
struct GradPiece {
  static constexpr int kBatch = 4;

  Row<T, kAligned> g, y;
  uint4 *g_memory, *y_memory;
  int begin, end;

  // Vectors of shared memory for one tensor, which may start anywhere in a line; a shifted one needs the
  // vector behind it too.
  HOST_DEVICE static constexpr int room(int piece) {
    return (piece + (kAligned ? 7 : 8) + kLineVectors - 1) / kLineVectors * kLineVectors;
  }

  __device__ GradPiece(const GradRows<T>& all, const Rows<T>& y_to_dx, const Share& share, const Turn& turn)
      : g(all.g_to_dx, turn.row), y(y_to_dx, turn.row) {
    const int piece = share.ring.piece(), first = share.part * share.ring.slice, before = line_of(g.y);
    begin = first + turn.piece * piece - before;
    end = min(g.vectors(), first + min(share.ring.slice, (turn.piece + 1) * piece) - before);
    if constexpr (kAligned) begin = max(begin, 0);  // else what is outside the row is masked
    g_memory = share.memory + turn.stage * 2 * room(piece);
    y_memory = g_memory + room(piece) + line_of(y.source(begin));
    g_memory += line_of(g.source(begin));
  }
#if __CUDA_ARCH__ >= 900
  __device__ void fetch(Barrier& full) const {
    const Piece g_piece(g, begin, end), y_piece(y, begin, end);
    full.arrive_and_expect(g_piece.bytes + y_piece.bytes);
    g_piece.fetch(g_memory, full);
    y_piece.fetch(y_memory, full);
  }
#endif
  // A pair under a largest element of 0, so that the ring's way to join pairs only adds.
  template <int kThreads>
  __device__ Partial reduce() const {
    Partial mine{0, 0};
    for (int v = begin + static_cast<int>(threadIdx.x % kThreads); v < end; v += kBatch * kThreads) {
      uint4 g_bits[kBatch], y_bits[kBatch];
      read<kThreads>(v, g_bits, y_bits);
      mine.sum += dot<T>(g_bits, y_bits);
    }
    return mine;
  }
  template <int kThreads>
  __device__ void write(const Partial& whole) const {
    for (int v = begin + static_cast<int>(threadIdx.x % kThreads); v < end; v += kBatch * kThreads) {
      uint4 g_bits[kBatch], y_bits[kBatch];
      read<kThreads>(v, g_bits, y_bits);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int at = v + b * kThreads;
        if (at < end) store_gradient(g, at, g_bits[b], y_bits[b], whole.sum);
      }
    }
  }

 private:
  // Of a place in memory, its vector in a line.
  template <typename Pointer>
  __device__ static int line_of(const Pointer* place) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(place) / 16 % kLineVectors);
  }
  template <int kThreads>
  __device__ void read(int v, uint4 (&g_bits)[kBatch], uint4 (&y_bits)[kBatch]) const {
    read_slice(g, begin, end, g_memory, v, kThreads, uint4{}, g_bits);
    read_slice(y, begin, end, y_memory, v, kThreads, uint4{}, y_bits);
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
  HOST_DEVICE static constexpr int room(int piece) { return 2 * GradPiece<T, kAligned>::room(piece); }

  __device__ GradPiece<T, kAligned> at(const Turn& turn) const { return {all, y_to_dx, *this, turn}; }
#if __CUDA_ARCH__ >= 900
  __device__ void fetch(const Turn& turn, Barrier& full) const { at(turn).fetch(full); }
#endif
  template <int kThreads>
  __device__ Partial reduce(const GradPiece<T, kAligned>& piece) const {
    return piece.template reduce<kThreads>();
  }
  template <int kThreads>
  __device__ void write(const GradPiece<T, kAligned>& piece, const Partial& whole) const {
    piece.template write<kThreads>(whole);
  }
};

}  // namespace kernels::softmax
