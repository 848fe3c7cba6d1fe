// Wide rows in shared memory: persistent blocks share each row, and every block keeps a ring of slices that
// the copy engine (sm_90) fills ahead of need, so memory is read once and is always busy. A team's blocks
// exchange one pair a row through memory. Warps have roles, and wait for each other only through barriers in
// shared memory, so that none of them waits for the exchange: a stage, which holds a slice or a piece of one,
// is reduced `lag` stages before it is written.
#pragma once

#include "power.cuh"
#include "ring.h"
#include "slice.cuh"

namespace kernels::softmax {

constexpr int kPolls = kMaxTeam / kWarp;  // a warp polls all blocks of a team at once
static_assert(kMaxTeam % kWarp == 0, "Every lane of the polling warp looks at kPolls blocks.");
constexpr int kRoleWarps = 3;        // beside the workers: producer, publisher, poller
constexpr int kStageBoundary = 128;  // bytes, of the stages in shared memory

// In shared memory, one entry a stage or a row on its way, of which there are no more than stages. As large
// as the compiler makes it before the stages, whose boundary it shares.
template <int kWarps>
struct alignas(kStageBoundary) Control {
  Barrier full[kMaxStages];     // the stage is there
  Barrier empty[kMaxStages];    // the stage has been written out
  Barrier reduced[kMaxStages];  // a row's partials are there
  Barrier ready[kMaxStages];    // a row's whole is there
  Partial partials[kMaxStages][kWarps], whole[kMaxStages];
};

// A pair is one 64-bit word, so it arrives whole. Before it arrives the word is all ones, which no pair is: a
// largest element is never NaN.
__device__ __forceinline__ void publish(Partial* slot, const Partial& value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(slot),
               "l"(reinterpret_cast<const unsigned long long&>(value))
               : "memory");
}

__device__ __forceinline__ Partial peek(const Partial* slot) {
  unsigned long long word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(slot) : "memory");
  return reinterpret_cast<const Partial&>(word);
}

__device__ __forceinline__ bool arrived(const Partial& value) {
  return __float_as_uint(value.largest) != 0xffffffffu;
}

// A place in a ring, and the parity of its barriers' phase.
struct Place {
  int index = 0;
  unsigned parity = 0;

  __device__ void next(int count) {
    if (++index < count) return;
    index = 0;
    parity ^= 1;
  }
};

// Where a warp stands: a piece of this block's slice of a row.
struct Turn {
  int64_t row;
  int piece = 0;
  Place stage = {}, slot = {};  // of the piece, and of the row

  __device__ void next_row(const Ring& ring) {
    row += ring.teams;
    slot.next(ring.stages);
  }
  __device__ void next(const Ring& ring) {
    stage.next(ring.stages);
    if (++piece < ring.pieces) return;
    piece = 0;
    next_row(ring);
  }
};

// The pair of two parts.
__device__ __forceinline__ Partial joined(const Partial& a, const Partial& b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, rescaled(a, largest) + rescaled(b, largest)};
}

// Which rows, and which part of each, a block has: what the slices of every op start from.
struct Share {
  Ring ring;
  uint4* memory;
  int64_t rows;
  int part, team;

  __device__ Share(const Ring& ring, unsigned char* memory, int64_t rows)
      : ring(ring),
        memory(reinterpret_cast<uint4*>(memory)),
        rows(rows),
        part(blockIdx.x % ring.team),
        team(blockIdx.x / ring.team) {}

  __device__ Turn first() const { return {team}; }
  __device__ bool has(const Turn& turn) const { return turn.row < rows; }
};

// A piece of a block's slice of one row, and the shared memory that gets it; a shifted one needs the vector
// behind it too.
template <typename T, bool kAligned>
struct Slice {
  Row<T, kAligned> row;
  uint4* memory;
  int begin, end;

  __device__ Slice(const Row<T, kAligned>& row, const Share& share, int piece, uint4* memory)
      : row(row), memory(memory), begin(share.part * share.ring.slice + piece * share.ring.piece) {
    const int last = min(row.vectors(), (share.part + 1) * share.ring.slice);
    end = min(last, begin + share.ring.piece);
#ifdef SOFTGRAD_CONGRUENT
    this->memory += reinterpret_cast<uintptr_t>(row.source(begin)) / 16 % 8;
#endif
  }

#ifdef SOFTGRAD_CONGRUENT
  __host__ __device__ static constexpr int room(int piece) {
    return (piece + (kAligned ? 7 : 8) + 7) / 8 * 8;
  }
#else
  __host__ __device__ static constexpr int room(int piece) { return piece + (kAligned ? 0 : 1); }
#endif

  __device__ Piece piece() const { return {row, begin, end}; }

  // Vectors first, first + step, ... of the row; past the slice's end and outside the row, `outside`.
  template <int kCount>
  __device__ void read(int first, int step, uint4 outside, uint4 (&bits)[kCount]) const {
    read_slice(row, begin, end, memory, first, step, outside, bits);
  }
};

#if __CUDA_ARCH__ >= 900
template <int kThreads, typename Slices>
__device__ __forceinline__ void work(const Slices& slices, Control<kThreads / kWarp>& control) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const Ring& ring = slices.ring;
  Turn reducing = slices.first(), writing = slices.first();
  Partial mine;
  for (int ahead = 0; slices.has(writing);) {
    if (slices.has(reducing)) {
      control.full[reducing.stage.index].wait(reducing.stage.parity);
      const Partial piece = slices.template reduce<kThreads>(reducing);
      mine = reducing.piece == 0 ? piece : joined(mine, piece);
      if (reducing.piece == ring.pieces - 1) {
        const Partial all = of_warp(mine);
        if (lane == 0) {
          control.partials[reducing.slot.index][warp] = all;
          control.reduced[reducing.slot.index].arrive();
        }
      }
      reducing.next(ring);
    }
    if (ahead++ < ring.lag) continue;
    if (writing.piece == 0) control.ready[writing.slot.index].wait(writing.slot.parity);
    slices.template write<kThreads>(writing, control.whole[writing.slot.index]);
    __syncwarp();
    if (lane == 0) control.empty[writing.stage.index].arrive();
    writing.next(ring);
  }
}

// One thread of a warp: asks for each piece as soon as there is room.
template <typename Slices, int kWarps>
__device__ __forceinline__ void produce(const Slices& slices, Control<kWarps>& control) {
  if (threadIdx.x % kWarp != 0) return;
  for (Turn turn = slices.first(); slices.has(turn); turn.next(slices.ring)) {
    // A new barrier's phase before the first has ended.
    control.empty[turn.stage.index].wait(turn.stage.parity ^ 1);
    slices.fetch(turn, control.full[turn.stage.index]);
  }
}

__device__ __forceinline__ void announce(const Partial& whole, Partial& slot, Barrier& ready) {
  if (threadIdx.x % kWarp != 0) return;
  slot = whole;
  ready.arrive();
}

// A warp: tells the team what this block's slice came to. A team of one has the row with that.
template <typename Slices, int kWarps>
__device__ __forceinline__ void publish_parts(const Slices& slices, Control<kWarps>& control,
                                              Partial* published) {
  const int team = slices.ring.team;
  for (Turn turn = slices.first(); slices.has(turn); turn.next_row(slices.ring)) {
    control.reduced[turn.slot.index].wait(turn.slot.parity);
    const Partial part = combined(control.partials[turn.slot.index], kWarps);
    if (team == 1) {
      announce(part, control.whole[turn.slot.index], control.ready[turn.slot.index]);
    } else if (threadIdx.x % kWarp == 0) {
      publish(published + turn.row * team + slices.part, part);
    }
  }
}

// A warp: gathers what the team's blocks published.
template <typename Slices, int kWarps>
__device__ __forceinline__ void poll_parts(const Slices& slices, Control<kWarps>& control,
                                           const Partial* published) {
  const int team = slices.ring.team, lane = threadIdx.x % kWarp;
  if (team == 1) return;
  for (Turn turn = slices.first(); slices.has(turn); turn.next_row(slices.ring)) {
    control.reduced[turn.slot.index].wait(turn.slot.parity);  // before that the row cannot be complete
    const Partial* slots = published + turn.row * team;
    Partial parts[kPolls], mine{-INFINITY, 0};
    for (bool complete = false; !complete;) {
      complete = true;
#pragma unroll
      for (int p = 0; p < kPolls; ++p) {
        parts[p] = lane + p * kWarp < team ? peek(slots + lane + p * kWarp) : Partial{-INFINITY, 0};
      }
#pragma unroll
      for (const Partial& part : parts) complete = complete && arrived(part);
    }
    __syncwarp();
#pragma unroll
    for (const Partial& part : parts) mine.largest = fmaxf(mine.largest, part.largest);
#pragma unroll
    for (const Partial& part : parts) mine.sum += rescaled(part, mine.largest);
    announce(of_warp(mine), control.whole[turn.slot.index], control.ready[turn.slot.index]);
  }
}
#endif

// grid: teams * ring.team blocks, all of them resident at once where a team has more than one.
// published: [rows, ring.team], all ones.
template <typename Slices, int kThreads>
__global__ void __launch_bounds__(kThreads + kRoleWarps * kWarp, 1)
    ring_kernel(typename Slices::All all, Ring ring, Partial* published) {
#if __CUDA_ARCH__ >= 900
  constexpr int kWarps = kThreads / kWarp;
  extern __shared__ __align__(kStageBoundary) unsigned char memory[];
  __shared__ Control<kWarps> control;
  const Slices slices(all, ring, memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < ring.stages; ++s) {
      control.full[s].init(1);
      control.reduced[s].init(kWarps);
      control.ready[s].init(1);
      control.empty[s].init(kWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int role = static_cast<int>(threadIdx.x / kWarp) - kWarps;
  if (role < 0) work<kThreads>(slices, control);
  if (role == 0) produce(slices, control);
  if (role == 1) publish_parts(slices, control, published);
  if (role == 2) poll_parts(slices, control, published);
#endif
}

// `published`: [rows, ring.team] on the device, of any content; not used where a team is one block.
template <typename Slices, int kThreads>
cudaError_t launch_ring(const typename Slices::All& all, int64_t rows, const Ring& ring, void* published,
                        cudaStream_t stream) {
  auto* kernel = &ring_kernel<Slices, kThreads>;
  const int bytes = ring.stages * Slices::room(ring.piece) * 16;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  if (ring.team > 1) {
    error = cudaMemsetAsync(published, 0xff, rows * ring.team * sizeof(Partial), stream);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute together;  // a block that waits for another must not keep it from starting
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = ring.team > 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ring.teams * ring.team);
  config.blockDim = dim3(kThreads + kRoleWarps * kWarp);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, all, ring, static_cast<Partial*>(published));
}

}  // namespace kernels::softmax
