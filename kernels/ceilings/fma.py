"""Fused multiply-adds in float32 and nothing else: what the ordinary cores can do, tensor cores aside.

Each element is a chain in which every step waits for the one before. A thread holds 16 of them, so that a
single warp can issue one each cycle while the earlier ones are under way (a step takes four cycles).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 2048  # chains of a program: 16 for each of its 128 threads
UNROLL = 32  # steps between two branches: 512 instructions, which still fit the instruction cache
_WARPS = 4  # one for each scheduler of a multiprocessor
_PROGRAMS_PER_SM = 64  # more than fit at once, so that each multiprocessor takes its share


@triton.jit
def fma_kernel(out, factor, addend, rounds, BLOCK: tl.constexpr, UNROLL: tl.constexpr):  # out: [programs]
    i_program = tl.program_id(0).to(tl.int64)
    b_x = tl.arange(0, BLOCK).to(tl.float32)
    for _ in range(rounds):
        for _ in tl.static_range(UNROLL):
            b_x = tl.fma(b_x, factor, addend)
    tl.store(out + i_program, tl.sum(b_x, axis=0))  # a value that nobody uses would not be computed


def fma(out: torch.Tensor, rounds: int, factor: float = -1.0, addend: float = 1.5) -> torch.Tensor:
    """`out`: [programs] float32; each program's sum of its `BLOCK` chains after `UNROLL * rounds` steps.

    Chain i starts at i; a step is `x * factor + addend`. The defaults flip it between two values for ever:
    nothing overflows or settles, which would save power. Costs `flops(out, rounds)`.
    """
    with torch.cuda.device_of(out):
        fma_kernel[(out.numel(),)](out, factor, addend, rounds, BLOCK=BLOCK, UNROLL=UNROLL, num_warps=_WARPS)
    return out


def flops(out: torch.Tensor, rounds: int) -> int:
    """A multiply-add counts as two."""
    return 2 * out.numel() * BLOCK * UNROLL * rounds


def output(device: str | torch.device) -> torch.Tensor:
    """An output of as many programs as keep the whole GPU busy."""
    programs = _PROGRAMS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count
    return torch.empty(programs, dtype=torch.float32, device=device)
