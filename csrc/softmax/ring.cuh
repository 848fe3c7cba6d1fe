// Wide rows in shared memory: persistent blocks share each row, and every block keeps a ring of slices that
// the copy engine (sm_90) fills ahead of need, so memory is read once and is always busy. A team's blocks
// exchange one pair a row through memory. Warps have roles, and wait for each other only through barriers in
// shared memory, so that none of them waits for the exchange: a slice is reduced `lag` rows before it is
// written, or other warps write it than reduce it.
#pragma once

#include "power.cuh"
#include "ring.h"
#include "shared_limit.h"
#include "slice.cuh"

namespace kernels::softmax {

constexpr int kPolls = kMaxTeam / kWarp;  // a warp polls all blocks of a team at once
static_assert(kMaxTeam % kWarp == 0, "Every lane of the polling warp looks at kPolls blocks.");
// Beside the workers: producer, publisher, poller, of which there are two where writers are apart: a row is
// polled for longer than some slices take to come.
template <int kWriters>
constexpr int kPollers = kWriters ? 2 : 1;
template <int kWriters>
constexpr int kRoleWarps = 2 + kPollers<kWriters>;
constexpr int kStageBoundary = 128;  // bytes, of the stages in shared memory

// In shared memory, one entry a stage, or a row, of which there are never more. As large as the compiler
// makes it before the stages, whose boundary it shares.
template <int kWarps>
struct alignas(kStageBoundary) Control {
  Barrier full[kMaxStages];     // the slice, or the piece, is there
  Barrier reduced[kMaxStages];  // a row's partials are there
  Barrier ready[kMaxStages];    // a row's whole is there
  Barrier empty[kMaxStages];    // the slice, or the piece, has been written out
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

// Where a warp stands: its row, the stage that holds this block's slice of it, or a piece of that, and what
// belongs to the row. With slices of one piece `slot` goes with `stage`.
struct Turn {
  int64_t row;
  int stage = 0;
  unsigned parity = 0;
  int piece = 0, slot = 0;
  unsigned slot_parity = 0;

  __device__ void next(const Ring& ring) {
    step(stage, parity, ring.stages);
    if (++piece == ring.pieces) next_row(ring);
  }
  // For those who see to whole rows, and leave `stage` alone.
  __device__ void next_row(const Ring& ring) {
    row += ring.teams;
    piece = 0;
    step(slot, slot_parity, ring.stages);
  }

 private:
  __device__ static void step(int& place, unsigned& parity, int count) {
    if (++place < count) return;
    place = 0;
    parity ^= 1;
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
  __device__ void advance(Turn& turn) const { turn.next(ring); }
};

#if __CUDA_ARCH__ >= 900
// `mine`: of the pieces of this row that this thread has reduced; the row's last piece tells the publisher.
template <int kThreads, typename Slices, typename Slice>
__device__ __forceinline__ void reduce_stage(const Slices& slices, const Slice& slice, const Turn& turn,
                                             Partial& mine, Control<kThreads / kWarp>& control) {
  const Partial piece = slices.template reduce<kThreads>(slice);
  mine = turn.piece == 0 ? piece : joined(mine, piece);
  if (turn.piece < slices.ring.pieces - 1) return;
  const Partial all = of_warp(mine);
  if (threadIdx.x % kWarp != 0) return;
  control.partials[turn.slot][threadIdx.x / kWarp] = all;
  control.reduced[turn.slot].arrive();
}

template <int kThreads, typename Slices, typename Slice, int kWarps>
__device__ __forceinline__ void write_stage(const Slices& slices, const Slice& slice, const Turn& turn,
                                            Control<kWarps>& control) {
  slices.template write<kThreads>(slice, control.whole[turn.slot]);
  __syncwarp();
  if (threadIdx.x % kWarp == 0) control.empty[turn.stage].arrive();
}

// Those who reduce and write in turn.
template <int kThreads, typename Slices>
__device__ __forceinline__ void work(const Slices& slices, Control<kThreads / kWarp>& control) {
  Turn reducing = slices.first(), writing = slices.first();
  Partial mine{};
  for (int ahead = 0; slices.has(writing);) {
    if (slices.has(reducing)) {
      control.full[reducing.stage].wait(reducing.parity);
      reduce_stage<kThreads>(slices, slices.at(reducing), reducing, mine, control);
      slices.advance(reducing);
    }
    if (ahead++ < slices.ring.lag) continue;
    if (writing.piece == 0) control.ready[writing.slot].wait(writing.slot_parity);
    write_stage<kThreads>(slices, slices.at(writing), writing, control);
    slices.advance(writing);
  }
}

// Those who reduce and do not write: they never wait for the exchange.
template <int kThreads, typename Slices>
__device__ __forceinline__ void reduce_all(const Slices& slices, Control<kThreads / kWarp>& control) {
  Partial mine{};
  for (Turn turn = slices.first(); slices.has(turn); slices.advance(turn)) {
    const auto slice = slices.at(turn);
    control.full[turn.stage].wait(turn.parity);
    reduce_stage<kThreads>(slices, slice, turn, mine, control);
  }
}

// Those who write and do not reduce: they never wait for a load.
template <int kThreads, typename Slices, int kWarps>
__device__ __forceinline__ void write_all(const Slices& slices, Control<kWarps>& control) {
  for (Turn turn = slices.first(); slices.has(turn); slices.advance(turn)) {
    const auto slice = slices.at(turn);
    if (turn.piece == 0) control.ready[turn.slot].wait(turn.slot_parity);
    control.full[turn.stage].wait(turn.parity);  // long ended: shows what the copy engine wrote
    write_stage<kThreads>(slices, slice, turn, control);
  }
}

// One thread of a warp: asks for each slice as soon as there is room.
template <typename Slices, int kWarps>
__device__ __forceinline__ void produce(const Slices& slices, Control<kWarps>& control) {
  if (threadIdx.x % kWarp != 0) return;
  for (Turn turn = slices.first(); slices.has(turn); slices.advance(turn)) {
    control.empty[turn.stage].wait(turn.parity ^ 1);  // a new barrier's phase before the first has ended
    slices.fetch(turn, control.full[turn.stage]);
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
    control.reduced[turn.slot].wait(turn.slot_parity);
    const Partial part = combined(control.partials[turn.slot], kWarps);
    if (team == 1) {
      announce(part, control.whole[turn.slot], control.ready[turn.slot]);
    } else if (threadIdx.x % kWarp == 0) {
      publish(published + turn.row * team + slices.part, part);
    }
  }
}

// A warp, one of kTurns that take turns: gathers what the team's blocks published.
template <int kTurns, typename Slices, int kWarps>
__device__ __forceinline__ void poll_parts(const Slices& slices, Control<kWarps>& control,
                                           const Partial* published, int poller) {
  const int team = slices.ring.team, lane = threadIdx.x % kWarp;
  if (team == 1) return;
  int number = 0;
  for (Turn turn = slices.first(); slices.has(turn); turn.next_row(slices.ring)) {
    if (number++ % kTurns != poller) continue;
    control.reduced[turn.slot].wait(turn.slot_parity);  // before that the row cannot be complete
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
    announce(of_warp(mine), control.whole[turn.slot], control.ready[turn.slot]);
  }
}
#endif

// kWriters: threads that write what kThreads others have reduced; 0: those do both.
// grid: teams * ring.team blocks, all of them resident at once where a team has more than one.
// published: [rows, ring.team], all ones.
template <typename Slices, int kThreads, int kWriters>
__global__ void __launch_bounds__(kThreads + kWriters + kRoleWarps<kWriters> * kWarp, 1)
    ring_kernel(typename Slices::All all, Ring ring, Partial* published) {
#if __CUDA_ARCH__ >= 900
  static_assert(kThreads % (kWriters ? kWriters : 1) == 0,
                "Writers are told apart by threadIdx.x % kWriters.");
  constexpr int kWarps = kThreads / kWarp, kWriting = (kWriters ? kWriters : kThreads) / kWarp;
  extern __shared__ __align__(kStageBoundary) unsigned char memory[];
  __shared__ Control<kWarps> control;
  const Slices slices(all, ring, memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < ring.stages; ++s) {
      control.full[s].init(1);
      control.reduced[s].init(kWarps);
      control.ready[s].init(1);
      control.empty[s].init(kWriting);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int writer = static_cast<int>(threadIdx.x) - kThreads, role = (writer - kWriters) / kWarp;
  if constexpr (kWriters > 0) {
    if (writer < 0) reduce_all<kThreads>(slices, control);
    if (writer >= 0 && writer < kWriters) write_all<kWriters>(slices, control);
  } else {
    if (writer < 0) work<kThreads>(slices, control);
  }
  if (writer < kWriters) return;
  if (role == 0) produce(slices, control);
  if (role == 1) publish_parts(slices, control, published);
  if (role >= 2) poll_parts<kPollers<kWriters>>(slices, control, published, role - 2);
#endif
}

// `published`: [rows, ring.team] on the device, of any content; not used where a team is one block.
template <typename Slices, int kThreads, int kWriters = 0>
cudaError_t launch_ring(const typename Slices::All& all, int64_t rows, const Ring& ring, void* published,
                        cudaStream_t stream) {
  auto* kernel = &ring_kernel<Slices, kThreads, kWriters>;
  const int bytes = ring.stages * Slices::room(ring.piece()) * 16;
  if (ring.team > 1) {
    const cudaError_t error = cudaMemsetAsync(published, 0xff, rows * ring.team * sizeof(Partial), stream);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute together;  // a block that waits for another must not keep it from starting
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = ring.team > 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ring.teams * ring.team);
  config.blockDim = dim3(kThreads + kWriters + kRoleWarps<kWriters> * kWarp);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  return with_shared_bytes(kernel, bytes, [&] {
    return cudaLaunchKernelEx(&config, kernel, all, ring, static_cast<Partial*>(published));
  });
}

}  // namespace kernels::softmax
