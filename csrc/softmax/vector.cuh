// Rows of any alignment as 16-byte vectors. No torch here.
// Loads and stores carry no hints: telling the caches that nothing is used twice costs 3 to 5 % on an H200.
#pragma once

#include "../common/device.cuh"

namespace kernels::softmax {

template <typename T>
constexpr int kPerVector = 16 / sizeof(T);

// A vector of -inf, which adds nothing to a row.
template <typename T>
__device__ __forceinline__ uint4 nothing() {
  constexpr uint32_t kWord = std::is_same_v<T, float>           ? 0xff800000u
                             : std::is_same_v<T, __nv_bfloat16> ? 0xff80ff80u
                                                                : 0xfc00fc00u;
  return {kWord, kWord, kWord, kWord};
}

template <typename T>
__device__ __forceinline__ void unpack(uint4 bits, float (&values)[kPerVector<T>]) {
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      values[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  }
}

template <typename T>
__device__ __forceinline__ uint4 pack(const float (&values)[kPerVector<T>]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      words[i] = __float_as_uint(values[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const uint32_t&>(pair);
    } else {
      const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const uint32_t&>(pair);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// The 16 bytes that start `shift` bytes (even, 1 to 15) into the 32 bytes of low and high.
__device__ __forceinline__ uint4 straddling(uint4 low, uint4 high, unsigned shift) {
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
  const unsigned bits = 8 * (shift & 3);
  return {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
          __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

// All rows: `stride` elements lie between the starts of two rows of x; y is contiguous.
template <typename T>
struct Rows {
  const T* x;
  T* y;
  int64_t rows, cols, stride;
  bool aligned;  // every row of both is whole 16-byte vectors on 16-byte boundaries
};

// One row, cut where the *output* has its 16-byte boundaries: vector v holds the elements from
// v * kPerVector - lead on. The first and the last may hold less; the input may be shifted against them.
// kAligned promises that every row of both starts on a boundary and is whole vectors.
template <typename T, bool kAligned>
struct Row {
  const T* x;
  T* y;
  int64_t cols;
  int lead = 0;        // elements of vector 0 before the row
  unsigned shift = 0;  // bytes by which the input's boundaries lie before the output's

  __device__ Row(const Rows<T>& all, int64_t row)
      : x(all.x + row * all.stride), y(all.y + row * all.cols), cols(all.cols) {
    if constexpr (!kAligned) {
      lead = static_cast<int>(reinterpret_cast<uintptr_t>(y) % 16 / sizeof(T));
      shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(x - lead) % 16);
    }
  }

  __device__ int vectors() const {
    if constexpr (kAligned) return static_cast<int>(cols / kPerVector<T>);
    return static_cast<int>((cols + lead + kPerVector<T> - 1) / kPerVector<T>);
  }

  // Boundary of the input at or before the first element of vector v.
  __device__ const uint4* source(int v) const {
    const auto* first = x + (static_cast<int64_t>(v) * kPerVector<T> - lead);
    return reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(first) - shift);
  }

  // Whether any of the 16 bytes belong to the row. Those that do not are then on the row's pages.
  __device__ bool owns(const uint4* address) const {
    const auto first = reinterpret_cast<uintptr_t>(address);
    return first + 16 > reinterpret_cast<uintptr_t>(x) && first < reinterpret_cast<uintptr_t>(x + cols);
  }

  __device__ bool whole(int v) const {
    return kAligned || (v >= (lead ? 1 : 0) && v < static_cast<int>((cols + lead) / kPerVector<T>));
  }

  // Elements outside the row become those of `outside`: what changes nothing for whoever asks.
  __device__ void mask(int v, uint4& bits, uint4 outside) const {
    const int64_t first = static_cast<int64_t>(v) * kPerVector<T> - lead;
    T elements[kPerVector<T>], others[kPerVector<T>];
    memcpy(elements, &bits, 16);
    memcpy(others, &outside, 16);
#pragma unroll
    for (int i = 0; i < kPerVector<T>; ++i) {
      if (first + i < 0 || first + i >= cols) elements[i] = others[i];
    }
    memcpy(&bits, elements, 16);
  }

  // Vectors first, first + step, ... of the row. All loads are asked for before one is looked at, so nothing
  // may branch between them.
  template <int kCount>
  __device__ void load(int first, int step, uint4 (&bits)[kCount]) const {
    const int end = vectors();
    if (kAligned || shift == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        bits[i] = first + i * step < end ? __ldg(source(first + i * step)) : nothing<T>();
      }
    } else {
      uint4 high[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const uint4* from = source(first + i * step);
        bits[i] = owns(from) ? __ldg(from) : uint4{};
        high[i] = owns(from + 1) ? __ldg(from + 1) : uint4{};
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        bits[i] = first + i * step < end ? straddling(bits[i], high[i], shift) : nothing<T>();
      }
    }
    if constexpr (!kAligned) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int v = first + i * step;
        if (v < end && !whole(v)) mask(v, bits[i], nothing<T>());
      }
    }
  }

  __device__ void store(int v, const float (&values)[kPerVector<T>]) const {
    const int64_t first = static_cast<int64_t>(v) * kPerVector<T> - lead;
    if (whole(v)) {
      *reinterpret_cast<uint4*>(y + first) = pack<T>(values);
      return;
    }
#pragma unroll
    for (int i = 0; i < kPerVector<T>; ++i) {
      if (first + i >= 0 && first + i < cols) y[first + i] = convert<T>(values[i]);
    }
  }
};

}  // namespace kernels::softmax
