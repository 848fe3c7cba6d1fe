// Wide rows in shared memory, without teams: the pieces of all rows, in order, go to whichever block has
// room. Blocks that stay (sm_90) keep a ring of pieces of g and y, filled by the copy engine; a piece is
// reduced when it is there and written when its row's sum is known, so memory is read once. SMs do not get
// the same share of memory, and here need not have the same share of each row.
#pragma once

#include "backward.cuh"
#include "ring.cuh"

namespace kernels::softmax {

struct Stream {
  int piece;    // vectors of a row that a stage holds, of each tensor
  int per_row;  // pieces
  int stages;   // of a block
  unsigned blocks;
};

// On the device, zeros before a launch: the next piece that nobody has, then how many pieces of each row have
// been summed; behind them, of any content, the sum of each piece.
struct StreamScratch {
  unsigned* next;
  unsigned* arrived;
  float* sums;

  __host__ __device__ StreamScratch(void* memory, int64_t rows)
      : next(static_cast<unsigned*>(memory)),
        arrived(next + 1),
        sums(reinterpret_cast<float*>(arrived + rows)) {}

  static int64_t zeros(int64_t rows) { return (1 + rows) * 4; }
  static int64_t bytes(int64_t rows, int per_row) { return zeros(rows) + rows * per_row * 4; }
};

// Which piece a stage holds; row -1: none, and no more will come.
struct Claim {
  int row, piece;
};

// In shared memory, one entry a stage.
template <int kWarps>
struct alignas(kStageBoundary) StreamControl {
  Barrier full[kMaxStages];     // the piece is there, or will not come
  Barrier reduced[kMaxStages];  // sums are there
  Barrier ready[kMaxStages];    // whole is there
  Barrier empty[kMaxStages];    // the piece has been written out
  Claim claims[kMaxStages];
  float sums[kMaxStages][kWarps], whole[kMaxStages];
};

// A piece of both tensors in a stage.
template <typename T, bool kAligned>
struct GradPiece {
  Row<T, kAligned> g, y;
  uint4 *g_memory, *y_memory;
  int begin, end;

  // Each tensor's lines of 128 bytes stay lines; a shifted piece needs the vector behind it too.
  __host__ __device__ static constexpr int room(int piece) {
    return (piece + (kAligned ? 0 : 8) + 7) / 8 * 8;
  }

  __device__ GradPiece(const GradRows<T>& all, const Rows<T>& y_rows, const Claim& claim,
                       const Stream& stream, uint4* stage)
      : g(all.g_to_dx, claim.row),
        y(y_rows, claim.row),
        g_memory(stage),
        y_memory(stage + room(stream.piece)) {
    begin = claim.piece * stream.piece;
    end = min(g.vectors(), begin + stream.piece);
    if constexpr (!kAligned) {
      g_memory += reinterpret_cast<uintptr_t>(g.source(begin)) / 16 % 8;
      y_memory += reinterpret_cast<uintptr_t>(y.source(begin)) / 16 % 8;
    }
  }

  template <int kCount>
  __device__ void read(int first, int step, uint4 (&g_bits)[kCount], uint4 (&y_bits)[kCount]) const {
    read_slice(g, begin, end, g_memory, first, step, uint4{}, g_bits);
    read_slice(y, begin, end, y_memory, first, step, uint4{}, y_bits);
  }

  template <int kThreads>
  __device__ float reduce() const {
    constexpr int kBatch = 2;
    float sum = 0;
    for (int v = begin + threadIdx.x; v < end; v += kBatch * kThreads) {
      uint4 g_bits[kBatch], y_bits[kBatch];
      read(v, kThreads, g_bits, y_bits);
      sum += dot<T>(g_bits, y_bits);
    }
    return lanes_sum<kWarp>(sum);
  }

  template <int kThreads>
  __device__ void write(float sum) const {
    constexpr int kBatch = 2;
    for (int v = begin + threadIdx.x; v < end; v += kBatch * kThreads) {
      uint4 g_bits[kBatch], y_bits[kBatch];
      read(v, kThreads, g_bits, y_bits);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (v + b * kThreads < end) store_gradient(g, v + b * kThreads, g_bits[b], y_bits[b], sum);
      }
    }
  }
};

#if __CUDA_ARCH__ >= 900
// One thread of a warp: takes the next piece as soon as there is room, not before, or a row might wait for a
// piece whose block is full of that row's others.
template <typename PieceOf, int kWarps>
__device__ __forceinline__ void claim_pieces(const PieceOf& piece_of, const Stream& stream, unsigned pieces,
                                             unsigned* next, StreamControl<kWarps>& control) {
  if (threadIdx.x % kWarp != 0) return;
  for (Place place;; place.next(stream.stages)) {
    control.empty[place.index].wait(place.parity ^ 1);  // a new barrier's phase before the first has ended
    const unsigned number = atomicAdd(next, 1u);
    Barrier& full = control.full[place.index];
    if (number >= pieces) {
      control.claims[place.index] = {-1, 0};
      full.arrive();
      return;
    }
    const Claim claim{static_cast<int>(number / stream.per_row), static_cast<int>(number % stream.per_row)};
    control.claims[place.index] = claim;
    const auto mine = piece_of(claim, place.index);
    const Piece g(mine.g, mine.begin, mine.end), y(mine.y, mine.begin, mine.end);
    full.arrive_and_expect(g.bytes + y.bytes);
    g.fetch(mine.g_memory, full);
    y.fetch(mine.y_memory, full);
  }
}

// A warp: tells all blocks what each piece came to.
template <int kWarps>
__device__ __forceinline__ void publish_sums(const Stream& stream, const StreamScratch& scratch,
                                             StreamControl<kWarps>& control) {
  const int lane = threadIdx.x % kWarp;
  for (Place place;; place.next(stream.stages)) {
    control.full[place.index].wait(place.parity);
    const Claim claim = control.claims[place.index];
    if (claim.row < 0) return;
    control.reduced[place.index].wait(place.parity);
    const float sum = lanes_sum<kWarp>(lane < kWarps ? control.sums[place.index][lane] : 0);
    if (lane != 0) continue;
    scratch.sums[static_cast<int64_t>(claim.row) * stream.per_row + claim.piece] = sum;
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(scratch.arrived + claim.row) : "memory");
  }
}

// A warp: gathers the sums of a row's pieces, always in the same order.
template <int kWarps>
__device__ __forceinline__ void gather_sums(const Stream& stream, const StreamScratch& scratch,
                                            StreamControl<kWarps>& control) {
  const int lane = threadIdx.x % kWarp;
  int known = -1;
  float whole = 0;
  for (Place place;; place.next(stream.stages)) {
    control.full[place.index].wait(place.parity);
    const int row = control.claims[place.index].row;
    if (row < 0) return;
    if (row != known) {
      for (unsigned there = 0; there < stream.per_row;) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(there)
                     : "l"(scratch.arrived + row)
                     : "memory");
      }
      __syncwarp();
      const float* sums = scratch.sums + static_cast<int64_t>(row) * stream.per_row;
      whole = 0;
      for (int i = lane; i < stream.per_row; i += kWarp) whole += __ldcg(sums + i);
      whole = lanes_sum<kWarp>(whole);
      known = row;
    }
    if (lane != 0) continue;
    control.whole[place.index] = whole;
    control.ready[place.index].arrive();
  }
}

// Reduces what has come, else writes what is ready.
template <int kThreads, typename PieceOf>
__device__ __forceinline__ void work_pieces(const PieceOf& piece_of, const Stream& stream,
                                            StreamControl<kThreads / kWarp>& control) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Place reducing, writing;
  bool more = true;
  for (int held = 0; more || held > 0;) {
    if (more && __all_sync(kWholeWarp, control.full[reducing.index].passed(reducing.parity))) {
      const Claim claim = control.claims[reducing.index];
      more = claim.row >= 0;
      if (!more) continue;
      const float sum = piece_of(claim, reducing.index).template reduce<kThreads>();
      if (lane == 0) {
        control.sums[reducing.index][warp] = sum;
        control.reduced[reducing.index].arrive();
      }
      reducing.next(stream.stages);
      ++held;
    } else if (held > 0 && __all_sync(kWholeWarp, control.ready[writing.index].passed(writing.parity))) {
      piece_of(control.claims[writing.index], writing.index)
          .template write<kThreads>(control.whole[writing.index]);
      __syncwarp();
      if (lane == 0) control.empty[writing.index].arrive();
      writing.next(stream.stages);
      --held;
    }
  }
}
#endif

template <typename T, int kThreads, bool kAligned>
__global__ void __launch_bounds__(kThreads + kRoleWarps * kWarp, 1)
    stream_backward_kernel(GradRows<T> all, Stream stream, StreamScratch scratch) {
#if __CUDA_ARCH__ >= 900
  constexpr int kWarps = kThreads / kWarp;
  static_assert(kWarps <= kWarp, "A lane for each warp's sum.");
  extern __shared__ __align__(kStageBoundary) unsigned char memory[];
  __shared__ StreamControl<kWarps> control;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stream.stages; ++s) {
      control.full[s].init(1);
      control.reduced[s].init(kWarps);
      control.ready[s].init(1);
      control.empty[s].init(kWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  Rows<T> y_rows = all.g_to_dx;
  y_rows.x = all.y;
  y_rows.stride = y_rows.cols;
  using Grad = GradPiece<T, kAligned>;
  const auto piece_of = [&](const Claim& claim, int stage) {
    return Grad(all, y_rows, claim, stream,
                reinterpret_cast<uint4*>(memory) + stage * 2 * Grad::room(stream.piece));
  };
  const int role = static_cast<int>(threadIdx.x / kWarp) - kWarps;
  if (role < 0) work_pieces<kThreads>(piece_of, stream, control);
  if (role == 0) {
    claim_pieces(piece_of, stream, static_cast<unsigned>(all.g_to_dx.rows) * stream.per_row, scratch.next,
                 control);
  }
  if (role == 1) publish_sums(stream, scratch, control);
  if (role == 2) gather_sums(stream, scratch, control);
#endif
}

// `scratch`: StreamScratch::bytes on the device, of any content.
template <typename T, int kThreads, bool kAligned>
cudaError_t launch_stream_backward(const GradRows<T>& all, const Stream& stream, void* scratch,
                                   cudaStream_t cuda_stream) {
  const int64_t rows = all.g_to_dx.rows;
  auto* kernel = &stream_backward_kernel<T, kThreads, kAligned>;
  const int bytes = stream.stages * 2 * GradPiece<T, kAligned>::room(stream.piece) * 16;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(scratch, 0, StreamScratch::zeros(rows), cuda_stream);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute together;  // a row may need the room of all blocks
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(stream.blocks);
  config.blockDim = dim3(kThreads + kRoleWarps * kWarp);
  config.dynamicSmemBytes = bytes;
  config.stream = cuda_stream;
  config.attrs = &together;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, all, stream, StreamScratch(scratch, rows));
}

}  // namespace kernels::softmax
