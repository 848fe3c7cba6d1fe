"""The gradient of a broadcast in Triton: the middle one of three dims summed, always in the same order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launching import traceable

_BLOCK = 4096  # elements of a step: 32 for each of 128 threads
_PROGRAMS = 512  # wanted at least: a few for each multiprocessor


@triton.jit
def sum_kernel(grad, out, reduce, inner, piece, DOUBLE: tl.constexpr, BR: tl.constexpr, BI: tl.constexpr):
    # grad: (outer, reduce, inner); out: (outer, splits, inner), each a sum of `piece` along reduce
    i_inner = tl.program_id(0).to(tl.int64)
    i_split = tl.program_id(1).to(tl.int64)
    i_outer = tl.program_id(2).to(tl.int64)
    o_i = i_inner * BI + tl.arange(0, BI)
    end = tl.minimum((i_split + 1) * piece, reduce)
    dtype = tl.float64 if DOUBLE else tl.float32
    b_total = tl.zeros([BR, BI], dtype)
    for start in range(i_split * piece, end, BR):
        o_r = start + tl.arange(0, BR)
        m = (o_r < end)[:, None] & (o_i < inner)[None, :]
        o = (i_outer * reduce + o_r)[:, None] * inner + o_i[None, :]
        b_total += tl.load(grad + o, mask=m, other=0.0).to(dtype)
    o_out = (i_outer * tl.num_programs(1) + i_split) * inner + o_i
    tl.store(out + o_out, tl.sum(b_total, axis=0).to(out.dtype.element_ty), mask=o_i < inner)


def sum_middle(grad: torch.Tensor, outer: int, reduce: int, inner: int, dtype: torch.dtype) -> torch.Tensor:
    """grad: contiguous, outer * reduce * inner elements; the result is (outer * inner,), of dtype.

    Where the output is too small to fill a GPU, pieces are summed first, and then their sums.
    """
    across = min(triton.next_power_of_2(inner), 64)
    blocks = triton.cdiv(inner, across)
    down = _BLOCK // across
    splits = max(1, min(triton.cdiv(_PROGRAMS, outer * blocks), triton.cdiv(reduce, 4 * down)))
    if splits == 1:
        return _sum_pieces(grad, (outer, reduce, inner), 1, dtype, (down, across))
    between = torch.float64 if grad.dtype == torch.float64 else torch.float32
    partial = _sum_pieces(grad, (outer, reduce, inner), splits, between, (down, across))
    return _sum_pieces(partial, (outer, splits, inner), 1, dtype, (down, across))


def _sum_pieces(grad, sizes, splits, dtype, block) -> torch.Tensor:
    (outer, reduce, inner), (down, across) = sizes, block
    out = grad.new_empty(outer * splits * inner, dtype=dtype)
    step = 65535  # of the grid's third dim
    for first in range(0, outer, step):
        count = min(step, outer - first)
        part = grad.view(outer, -1)[first : first + count], out.view(outer, -1)[first : first + count]
        grid = (triton.cdiv(inner, across), splits, count)
        with torch.cuda.device_of(out):
            traceable(sum_kernel)[grid](
                *part,
                reduce,
                inner,
                triton.cdiv(reduce, splits),
                DOUBLE=grad.dtype == torch.float64,
                BR=down,
                BI=across,
            )
    return out
