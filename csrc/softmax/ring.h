// How blocks that stay share rows in a ring (sm_90): what ring.cuh is launched with.
#pragma once

#include <cstdint>

namespace kernels::softmax {

constexpr int kMaxTeam = 160;
constexpr int kMaxStages = 24;

struct Ring {
  int team;    // blocks that share a row; 0: no ring holds it
  int teams;   // rows in flight
  int slice;   // vectors of a row that a block has
  int pieces;  // in which they come and go: as many stages
  int piece;   // vectors of a stage
  int stages;  // that a block holds, more than `lag`
  int lag;     // stages that a block reduces before it writes the first; the last of a row is among them
};

// What there is to share.
struct RingLoad {
  int64_t rows, vectors;  // of a row of one tensor
  int64_t beside;         // vectors more in shared memory for a slice that is shifted
  int tensors;            // whose rows are held together
  int64_t deep;           // stages that a ring should have
  int control_bytes;      // of shared memory beside the stages
};

// For the current device. `team` 0 chooses by width and number of rows.
Ring ring_of(const RingLoad& load, int team);

}  // namespace kernels::softmax
