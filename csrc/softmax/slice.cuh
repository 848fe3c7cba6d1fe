// A part of a row in shared memory, brought there by the copy engine (sm_90).
#pragma once

#include "barrier.cuh"
#include "rows.cuh"

namespace kernels::softmax {

// What the copy engine brings of vectors begin to end - 1 of a row: only 16-byte pieces that hold some of it.
struct Piece {
  uintptr_t from;
  unsigned bytes;
  int to;  // vectors of the stage before it

  template <typename T, bool kAligned>
  __device__ Piece(const Row<T, kAligned>& row, int begin, int end) {
    const auto start = reinterpret_cast<uintptr_t>(row.source(begin));
    const auto stop = reinterpret_cast<uintptr_t>(row.source(end)) + (row.shift ? 16 : 0);
    const auto high = min(stop, (reinterpret_cast<uintptr_t>(row.x + row.cols) + 15) / 16 * 16);
    from = max(start, reinterpret_cast<uintptr_t>(row.x) / 16 * 16);
    bytes = end > begin && high > from ? static_cast<unsigned>(high - from) : 0;
    to = static_cast<int>((from - start) / 16);
  }
#if __CUDA_ARCH__ >= 900
  // `full` has been told of the bytes.
  __device__ void fetch(uint4* stage, Barrier& full) const {
    if (bytes > 0) full.copy(stage + to, reinterpret_cast<const void*>(from), bytes);
  }
#endif
};

#if __CUDA_ARCH__ >= 900
// Asks for vectors begin to end - 1 of a row.
template <typename T, bool kAligned>
__device__ __forceinline__ void fetch_slice(const Row<T, kAligned>& row, int begin, int end, uint4* stage,
                                            Barrier& full) {
  const Piece piece(row, begin, end);
  full.arrive_and_expect(piece.bytes);
  piece.fetch(stage, full);
}
#endif

// Vectors first, first + step, ... of the slice that begins with vector `begin`; from `end` on, and outside
// the row, `outside`.
template <typename T, bool kAligned, int kCount>
__device__ __forceinline__ void read_slice(const Row<T, kAligned>& row, int begin, int end,
                                           const uint4* stage, int first, int step, uint4 outside,
                                           uint4 (&bits)[kCount]) {
  const uint4* from = stage + (first - begin);
#pragma unroll
  for (int i = 0; i < kCount; ++i) bits[i] = first + i * step < end ? from[i * step] : outside;
  if constexpr (!kAligned) {
    if (row.shift) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (first + i * step < end) bits[i] = straddling(bits[i], from[i * step + 1], row.shift);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i * step < end && !row.whole(first + i * step))
        row.mask(first + i * step, bits[i], outside);
    }
  }
}

}  // namespace kernels::softmax
