// Addition in packs of 16 bytes; an operand that is broadcast along the rows is read once a pack.
#include "vector.h"

#include "../common/divide.cuh"
#include "../common/pack.cuh"

namespace kernels {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kMostUnroll = 4, kNarrowUnroll = 8;

// out: (rows, cols) contiguous, a row `row` packs long; the operands' rows are `outer` elements apart.
template <typename T>
struct Rows {
  const T *a, *b;
  T* out;
  int64_t packs, a_outer, b_outer;
  Divisor row;
  int64_t n;
};

template <typename T, int kWidth, bool kSplat>
__device__ __forceinline__ Pack<T, kWidth> load(const T* from, int64_t at) {
  if constexpr (kSplat) {
    const T value = from[at];
    Pack<T, kWidth> pack;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) pack.at[i] = value;
    return pack;
  } else {
    return *reinterpret_cast<const Pack<T, kWidth>*>(from + at);
  }
}

template <typename T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> add(const Pack<T, kWidth>& a, const Pack<T, kWidth>& b) {
  Compute<T> x[kWidth], y[kWidth];
  widen(a, x);
  widen(b, y);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) x[i] += y[i];
  return narrow<T, kWidth>(x);
}

// kFlat: one row, so that nothing is divided. A thread's packs are blockDim.x apart: each load of a warp is
// one contiguous piece.
template <typename T, int kWidth, int kUnroll, bool kFlat, bool kSplatA, bool kSplatB>
__global__ void __launch_bounds__(kMaxThreads) add_kernel(const Rows<T> rows) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x;
  Pack<T, kWidth> a[kUnroll], b[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t i = first + static_cast<int64_t>(u) * blockDim.x;
    if (i >= rows.packs) break;
    const int64_t q = kFlat ? 0 : rows.row.quotient(i), r = (i - q * rows.row.value) * kWidth;
    a[u] = load<T, kWidth, kSplatA>(rows.a, q * rows.a_outer + (kSplatA ? 0 : r));
    b[u] = load<T, kWidth, kSplatB>(rows.b, q * rows.b_outer + (kSplatB ? 0 : r));
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t i = first + static_cast<int64_t>(u) * blockDim.x;
    if (i >= rows.packs) break;
    reinterpret_cast<Pack<T, kWidth>*>(rows.out)[i] = add<T, kWidth>(a[u], b[u]);
  }
  if constexpr (kFlat && kWidth > 1) {  // fewer than a pack is left at the end of the only row
    const int64_t rest = rows.packs * kWidth + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && rest < rows.n) {
      const auto x = load<T, 1, kSplatA>(rows.a, kSplatA ? 0 : rest),
                 y = load<T, 1, kSplatB>(rows.b, kSplatB ? 0 : rest);
      rows.out[rest] = add<T, 1>(x, y).at[0];
    }
  }
}

template <typename T, int kWidth, int kUnroll, bool kFlat>
cudaError_t launch(const Rows<T>& rows, bool splat_a, bool splat_b, int64_t threads, cudaStream_t stream) {
  auto kernel = add_kernel<T, kWidth, kUnroll, kFlat, false, false>;
  if (splat_a && splat_b) kernel = add_kernel<T, kWidth, kUnroll, kFlat, true, true>;
  if (splat_a && !splat_b) kernel = add_kernel<T, kWidth, kUnroll, kFlat, true, false>;
  if (!splat_a && splat_b) kernel = add_kernel<T, kWidth, kUnroll, kFlat, false, true>;
  const int64_t blocks = ceil_div(rows.packs, threads * kUnroll);
  kernel<<<static_cast<unsigned>(blocks > 0 ? blocks : 1), static_cast<unsigned>(threads), 0, stream>>>(rows);
  return cudaGetLastError();
}

// An Addition as rows: a single dim is one row.
struct View {
  bool flat, splat_a, splat_b;
  int64_t cols, a_outer, b_outer;

  explicit View(const Addition& add) : flat(add.rank == 1), cols(add.size[add.rank - 1]) {
    splat_a = add.a.stride[add.rank - 1] == 0;
    splat_b = add.b.stride[add.rank - 1] == 0;
    a_outer = flat ? 0 : add.a.stride[0];
    b_outer = flat ? 0 : add.b.stride[0];
  }

  // Whether an operand is as large as the output; else both come from a cache, and stores are what is under
  // way.
  bool streams() const { return flat || !(splat_a || a_outer == 0) || !(splat_b || b_outer == 0); }

  // Whether packs of `width` elements never cross the end of a row, and each is aligned.
  bool takes(const Addition& add, int width) const {
    return is_aligned(add.out) && (flat || cols % width == 0) &&
           (splat_a || (is_aligned(add.a.data) && a_outer % width == 0)) &&
           (splat_b || (is_aligned(add.b.data) && b_outer % width == 0));
  }

  template <typename T>
  Rows<T> rows(const Addition& add, int width) const {
    const int64_t packs = add.n / width;
    return {static_cast<const T*>(add.a.data),
            static_cast<const T*>(add.b.data),
            static_cast<T*>(add.out),
            packs,
            a_outer,
            b_outer,
            Divisor(flat ? 1 : cols / width, packs),
            add.n};
  }
};

template <typename T, int kWidth, int kUnroll>
cudaError_t run(const Addition& add, const View& view, int64_t threads, cudaStream_t stream) {
  const Rows<T> rows = view.rows<T>(add, kWidth);
  return view.flat ? launch<T, kWidth, kUnroll, true>(rows, view.splat_a, view.splat_b, threads, stream)
                   : launch<T, kWidth, kUnroll, false>(rows, view.splat_a, view.splat_b, threads, stream);
}

}  // namespace

bool add_is_vectorizable(const Addition& add) {
  const int inner = add.rank - 1;
  const int64_t a = add.a.stride[inner], b = add.b.stride[inner];
  return add.rank <= 2 && !is_mixed(add) && (a == 0 || a == 1) && (b == 0 || b == 1);
}

cudaError_t add_vector(const Addition& add, Cut cut, cudaStream_t stream) {
  if (add.n == 0) return cudaSuccess;  // a grid of no blocks is an error
  if (cut.threads % 32 != 0 || cut.threads < 32 || cut.threads > kMaxThreads) return cudaErrorInvalidValue;
  return with_any(add.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const View view(add);
    if (!view.takes(add, kWide<T>)) return run<T, 1, kNarrowUnroll>(add, view, cut.threads, stream);
    switch (view.streams() ? cut.loads / 2 : kMostUnroll) {
      case 1:
        return run<T, kWide<T>, 1>(add, view, cut.threads, stream);
      case 2:
        return run<T, kWide<T>, 2>(add, view, cut.threads, stream);
      case 4:
        return run<T, kWide<T>, 4>(add, view, cut.threads, stream);
      default:
        return cudaErrorInvalidValue;
    }
  });
}

}  // namespace kernels
