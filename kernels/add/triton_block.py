"""Addition in Triton: one block of outputs a program, operands found by their strides."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from kernels.add.broadcast import MAX_RANK, prepare

BLOCK = 1024


@triton.jit
def _convert(b_x, dtype: tl.constexpr):
    """As torch converts: to a half type from wider ones by way of float32."""
    if dtype.primitive_bitwidth == 16:
        return b_x.to(tl.float32).to(dtype)
    else:
        return b_x.to(dtype)


@triton.jit
def _sum(b_a, b_b, dtype: tl.constexpr):
    """In dtype; half types add in float32 and round once."""
    if dtype.primitive_bitwidth == 16:
        return (_convert(b_a, dtype).to(tl.float32) + _convert(b_b, dtype).to(tl.float32)).to(dtype)
    else:
        return _convert(b_a, dtype) + _convert(b_b, dtype)


@triton.jit
def _add(
    a, b, out, n, n1, n2, n3, a0, a1, a2, a3, b0, b1, b2, b3, RANK: tl.constexpr, BLOCK: tl.constexpr
):  # out: (n,); a, b: (n / (n1*n2*n3), n1, n2, n3) by strides a0..a3, b0..b3
    i_block = tl.program_id(0).to(tl.int64)
    o = i_block * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    o_a = tl.zeros([BLOCK], tl.int64)
    o_b = tl.zeros([BLOCK], tl.int64)
    o_rest = o
    if RANK > 1:
        o_a += (o_rest % n3) * a3
        o_b += (o_rest % n3) * b3
        o_rest = o_rest // n3
    if RANK > 2:
        o_a += (o_rest % n2) * a2
        o_b += (o_rest % n2) * b2
        o_rest = o_rest // n2
    if RANK > 3:
        o_a += (o_rest % n1) * a1
        o_b += (o_rest % n1) * b1
        o_rest = o_rest // n1
    o_a += o_rest * a0
    o_b += o_rest * b0
    b_a = tl.load(a + o_a, mask=m, other=0)
    b_b = tl.load(b + o_b, mask=m, other=0)
    tl.store(out + o, _sum(b_a, b_b, out.dtype.element_ty), mask=m)


# Tracing looks into a compiled kernel; the interpreter's stand-in is opaque to it.
INTERPRETED = isinstance(_add, InterpretedFunction)
_register = torch.library.custom_op if INTERPRETED else torch.library.triton_op


@_register("kernels::add_triton_block", mutates_args={"out"})
def _run(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    n, rank = out.numel(), out.dim()
    if n == 0:
        return
    # The first dim's stride comes first, the others end at the last: a rank below 4 leaves a gap, unused.
    gap = [0] * (MAX_RANK - rank)
    sizes = [*gap, *out.shape[1:]]
    strides = [s for t in (a, b) for s in (t.stride(0), *gap, *t.stride()[1:])]
    traceable = _add if INTERPRETED else torch.library.wrap_triton(_add)
    with torch.cuda.device_of(out):
        traceable[(triton.cdiv(n, BLOCK),)](a, b, out, n, *sizes, *strides, RANK=rank, BLOCK=BLOCK)


if INTERPRETED:
    torch.library.register_fake("kernels::add_triton_block", lambda a, b, out: None)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's. Forward only."""
    out, *views = prepare(a, b, "triton_block")
    _run(*views)
    return out
