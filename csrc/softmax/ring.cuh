// Wide rows in shared memory: persistent blocks share each row, and every block keeps a ring of slices that
// the copy engine (sm_90) fills ahead of need, so memory is read once and is always busy. A team's blocks
// exchange one pair a row through memory. Warps have roles, and wait for each other only through barriers in
// shared memory, so that none of them waits for the exchange: a slice is reduced `lag` rows before it is
// written.
#pragma once

#include "power.cuh"
#include "ring.h"
#include "slice.cuh"

namespace kernels::softmax {

constexpr int kPolls = kMaxTeam / kWarp;  // a warp polls all blocks of a team at once
static_assert(kMaxTeam % kWarp == 0, "Every lane of the polling warp looks at kPolls blocks.");
constexpr int kRoleWarps = 3;  // beside the workers: producer, publisher, poller

// In shared memory, one entry a stage. Its size is what it takes there: the stages behind it start on 128
// bytes.
template <int kWarps>
struct alignas(128) Control {
  Barrier full[kMaxStages];     // the slice is there
  Barrier reduced[kMaxStages];  // partials are there
  Barrier ready[kMaxStages];    // whole is there
  Barrier empty[kMaxStages];    // the slice has been written out
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

// Where a warp stands: its row, and the stage that holds this block's slice of it.
struct Turn {
  int64_t row;
  int stage = 0;
  unsigned parity = 0;

  __device__ void next(int teams, int stages) {
    row += teams;
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

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
  __device__ void advance(Turn& turn) const { turn.next(ring.teams, ring.stages); }
};

// A block's part of one row, and the shared memory that gets it; a shifted one needs the vector behind it
// too.
template <typename T, bool kAligned>
struct Slice {
  Row<T, kAligned> row;
  uint4* memory;
  int begin, end;

  __device__ Slice(const Row<T, kAligned>& row, const Share& share, uint4* memory)
      : row(row),
        memory(memory),
        begin(share.part * share.ring.slice),
        end(min(row.vectors(), begin + share.ring.slice)) {}

  __host__ __device__ static constexpr int room(int slice) { return slice + (kAligned ? 0 : 1); }

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
  Turn reducing = slices.first(), writing = slices.first();
  for (int ahead = 0; slices.has(writing);) {
    if (slices.has(reducing)) {
      control.full[reducing.stage].wait(reducing.parity);
      const Partial mine = of_warp(slices.template reduce<kThreads>(reducing));
      if (lane == 0) {
        control.partials[reducing.stage][warp] = mine;
        control.reduced[reducing.stage].arrive();
      }
      slices.advance(reducing);
    }
    if (ahead++ < slices.ring.lag) continue;
    control.ready[writing.stage].wait(writing.parity);
    slices.template write<kThreads>(writing, control.whole[writing.stage]);
    __syncwarp();
    if (lane == 0) control.empty[writing.stage].arrive();
    slices.advance(writing);
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
  for (Turn turn = slices.first(); slices.has(turn); slices.advance(turn)) {
    control.reduced[turn.stage].wait(turn.parity);
    const Partial part = combined(control.partials[turn.stage], kWarps);
    if (team == 1) {
      announce(part, control.whole[turn.stage], control.ready[turn.stage]);
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
  for (Turn turn = slices.first(); slices.has(turn); slices.advance(turn)) {
    control.reduced[turn.stage].wait(turn.parity);  // before that the row cannot be complete
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
    announce(of_warp(mine), control.whole[turn.stage], control.ready[turn.stage]);
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
  extern __shared__ __align__(128) unsigned char memory[];
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
  const int bytes = ring.stages * Slices::room(ring.slice) * 16;
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
