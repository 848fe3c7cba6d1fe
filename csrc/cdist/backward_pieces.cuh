// The other points of a gradient made ready for the tensor core: off one centre, split into two TF32 numbers,
// and laid out as the threads of a warp read them.
#pragma once

#include "backward.cuh"
#include "tf32.cuh"

namespace kernels {

constexpr int kCoordinates = 64;                  // of a block
constexpr int kStep = 32;                         // others that come in at once
constexpr int kParts = kCoordinates * kStep / 2;  // float4 of a step: hi and lo
constexpr int kSample = 32;                       // points of either input that the centre is taken from

// Which four numbers a thread multiplies at once. Of the sixteen others of half a step a thread has the four
// from 4 * (lane % 4); they are dealt out to two products so that a vector of four weights is whole.
struct Place {
  int half, product, tile, lane;

  __host__ __device__ static constexpr int index(int half, int product, int tile, int piece, int lane) {
    return (((half * 2 + product) * (kCoordinates / 16) + tile) * 2 + piece) * 32 + lane;
  }
  __device__ explicit Place(int unit)
      : half(unit / 256), product(unit / 128 % 2), tile(unit / 32 % 4), lane(unit % 32) {}
  __device__ int coordinate() const { return 16 * tile + lane / 4; }                 // and that plus 8
  __device__ int other() const { return 16 * half + 4 * (lane % 4) + 2 * product; }  // and the next
};

// centre [batch, chunks * kCoordinates]: the mean of a sample of both inputs, of what is finite in it.
// A block of kCoordinates threads for each chunk of each batch.
__global__ void centre_kernel(const __grid_constant__ BackwardWork work, float* centre) {
  const int64_t b = blockIdx.x / work.chunks,
                k = blockIdx.x % work.chunks * int64_t{kCoordinates} + threadIdx.x;
  float sum = 0;
  if (k < work.d) {
#pragma unroll 8
    for (int64_t s = 0; s < 2 * kSample; ++s) {
      const int64_t count = s < kSample ? work.own_count : work.other_count;
      const float* x = (s < kSample ? work.own : work.other) + b * count * work.d;
      const float value = x[s % kSample * count / kSample * work.d + k];
      sum += isfinite(value) ? value / (2 * kSample) : 0.0f;  // divided first: a sum could overflow
    }
  }
  centre[blockIdx.x * int64_t{kCoordinates} + threadIdx.x] = sum;
}

// pieces [batch, chunks, steps, kParts]; a thread for every four numbers of either piece.
__global__ void split_kernel(const __grid_constant__ BackwardWork work, const float* centre, float4* pieces,
                             int64_t steps) {
  const int64_t unit = thread_index(), step = unit / (kParts / 2) % steps;
  const int64_t chunk = unit / (kParts / 2) / steps % work.chunks,
                b = unit / (kParts / 2) / steps / work.chunks;
  if (b >= work.batch) return;
  const Place place(static_cast<int>(unit % (kParts / 2)));
  uint32_t hi[4], lo[4];
#pragma unroll
  for (int v = 0; v < 4; ++v) {
    const int64_t other = step * kStep + place.other() + v / 2;
    const int64_t k = chunk * kCoordinates + place.coordinate() + v % 2 * 8;
    const bool exists = other < work.other_count && k < work.d;
    const float value = exists ? work.other[(b * work.other_count + other) * work.d + k] : 0.0f;
    const Split split(exists ? value - centre[b * work.chunks * kCoordinates + k] : 0.0f);
    hi[v] = split.hi, lo[v] = split.lo;
  }
  float4* to = pieces + unit / (kParts / 2) * kParts;
  for (int piece = 0; piece < 2; ++piece) {
    const uint32_t* from = piece == 0 ? hi : lo;
    to[Place::index(place.half, place.product, place.tile, piece, place.lane)] = {
        __uint_as_float(from[0]), __uint_as_float(from[1]), __uint_as_float(from[2]),
        __uint_as_float(from[3])};
  }
}

}  // namespace kernels
