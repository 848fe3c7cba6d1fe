// How blocks that stay share rows in a ring (sm_90): what ring.cuh is launched with.
#pragma once

#include <cstdint>

#include "../common/dtype.h"

namespace kernels::softmax {

constexpr int kMaxTeam = 160;
constexpr int kMaxStages = 12;

struct Ring {
  int team;        // blocks that share a row; 0: no ring holds it
  int teams;       // rows in flight
  int slice;       // vectors of a row that a block holds
  int stages;      // slices, or pieces of them, that a block holds, more than `lag`
  int lag;         // stages that a block reduces before it writes the first, where the same warps do both
  int pieces = 1;  // in which a slice comes and goes, each in a stage of its own

  // Vectors of a row that a stage holds, whole lines of 128 bytes where a slice has several pieces.
  HOST_DEVICE constexpr int piece() const {
    return pieces == 1 ? slice : (slice + 8 * pieces - 1) / (8 * pieces) * 8;
  }
};

// What there is to share.
struct RingLoad {
  int64_t rows, vectors;  // of a row of one tensor
  int64_t beside;         // vectors more in shared memory for a slice that is shifted
  int64_t deep;           // stages that a ring should have
  int control_bytes;      // of shared memory beside the stages
  int64_t step = 1;       // vectors of which a slice is a multiple
};

// For the current device. `team` 0 chooses by width and number of rows.
Ring ring_of(const RingLoad& load, int team);

}  // namespace kernels::softmax
