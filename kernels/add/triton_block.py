"""Addition in Triton: one block of outputs a program, operands found by their strides."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.add.broadcast import MAX_RANK, prepare
from kernels.add.operators import add_by
from kernels.add.triton_sum import sum_kernel, sum_middle
from kernels.launching import operator, traceable

BLOCK = 1024


@triton.jit
def _convert(b_x, dtype: tl.constexpr):
    """As torch converts: to a half type from wider ones by way of float32."""
    if dtype.primitive_bitwidth == 16:
        return b_x.to(tl.float32).to(dtype)
    else:
        return b_x.to(dtype)


@triton.jit
def add_blocks(b_a, b_b, dtype: tl.constexpr):
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
    tl.store(out + o, add_blocks(b_a, b_b, out.dtype.element_ty), mask=m)


def run(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The sum in dtype (without one, a's), for shapes that broadcast to at most 4 dims that do not merge."""
    out, a, b, flat = prepare(a, b, dtype or a.dtype)
    n, rank = out.numel(), flat.dim()
    if n == 0:
        return out
    # The first dim's stride comes first, the others end at the last: a rank below 4 leaves a gap, unused.
    gap = [0] * (MAX_RANK - rank)
    sizes = [*gap, *flat.shape[1:]]
    strides = [s for t in (a, b) for s in (t.stride(0), *gap, *t.stride()[1:])]
    with torch.cuda.device_of(out):
        traceable(_add)[(triton.cdiv(n, BLOCK),)](a, b, flat, n, *sizes, *strides, RANK=rank, BLOCK=BLOCK)
    return out


for _name in ("kernels::add_triton_block", "kernels::add_triton_block_forward"):
    operator(_add)(_name, mutates_args=())(run)


@operator(sum_kernel)("kernels::add_triton_block_sum", mutates_args=())
def _sum_middle(grad: torch.Tensor, outer: int, reduce: int, inner: int, dtype: torch.dtype) -> torch.Tensor:
    return sum_middle(grad, outer, reduce, inner, dtype)


add = add_by("add_triton_block", "triton_block")
