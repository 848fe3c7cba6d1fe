// A barrier in shared memory (sm_90), which the copy engine and other blocks can arrive at. No torch here.
#pragma once

#include <cstdint>

namespace kernels::softmax {

// A barrier in shared memory. Its phase ends when the arrivals it was made for, and the bytes that were
// announced, are in; phases are told apart by their parity.
struct Barrier {
  uint64_t state;

  __device__ static unsigned address_of(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
  }
  __device__ unsigned address() const { return address_of(&state); }

#if __CUDA_ARCH__ >= 900
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  __device__ void arrive_and_expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
  // `bytes` from device memory, by the copy engine; both ends on 16-byte boundaries.
  __device__ void copy(void* to, const void* from, unsigned bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            address_of(to)),
        "l"(from), "r"(bytes), "r"(address())
        : "memory");
  }
#endif
};

}  // namespace kernels::softmax
