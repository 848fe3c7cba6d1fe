"""Addition in Triton: wide blocks of rows, so that nothing is divided and several loads are under way."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.add import triton_block
from kernels.add.broadcast import prepare
from kernels.add.operators import add_by
from kernels.add.triton_block import add_blocks
from kernels.add.triton_sum import sum_kernel, sum_middle
from kernels.launching import operator, traceable


@triton.jit
def _add(
    a, b, out, rows, cols, a0, b0, A1: tl.constexpr, B1: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr
):  # out: (rows, cols); a, b: rows a0, b0 apart, walked by A1, B1 (1, or 0 where broadcast)
    i_block = tl.program_id(0).to(tl.int64)
    blocks = (cols + BC - 1) // BC
    o_r = (i_block // blocks * BR + tl.arange(0, BR))[:, None]
    o_c = (i_block % blocks * BC + tl.arange(0, BC))[None, :]
    m = (o_r < rows) & (o_c < cols)
    b_a = tl.load(a + o_r * a0 + o_c * A1, mask=m, other=0)
    b_b = tl.load(b + o_r * b0 + o_c * B1, mask=m, other=0)
    tl.store(out + o_r * cols + o_c, add_blocks(b_a, b_b, out.dtype.element_ty), mask=m)


def _run(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None = None, block: int = 1024, warps: int = 4
) -> torch.Tensor:
    out, view_a, view_b, view = prepare(a, b, dtype or a.dtype)
    inner = view_a.stride(-1), view_b.stride(-1)
    if view.dim() > 2 or not set(inner) <= {0, 1}:
        return triton_block.run(a, b, dtype)
    if out.numel() == 0:
        return out
    rows, cols = (1, *view.shape)[-2:]
    outer = (0, 0) if view.dim() == 1 else (view_a.stride(0), view_b.stride(0))
    across = min(triton.next_power_of_2(cols), block)
    down = block // across if rows > 1 else 1
    grid = (triton.cdiv(rows, down) * triton.cdiv(cols, across),)
    with torch.cuda.device_of(out):
        traceable(_add)[grid](
            view_a, view_b, view, rows, cols, *outer, *inner, BR=down, BC=across, num_warps=warps
        )
    return out


for _name in ("kernels::add_triton_unroll", "kernels::add_triton_unroll_forward"):
    operator(_add)(_name, mutates_args=())(_run)


@operator(sum_kernel)("kernels::add_triton_unroll_sum", mutates_args=())
def _sum_middle(grad: torch.Tensor, outer: int, reduce: int, inner: int, dtype: torch.dtype) -> torch.Tensor:
    return sum_middle(grad, outer, reduce, inner, dtype)


_by_ops = add_by("add_triton_unroll", "triton_unroll")


def add(a: torch.Tensor, b: torch.Tensor, block: int = 1024, warps: int = 4) -> torch.Tensor:
    """a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's.

    block: output elements of a program, a power of 2; warps: that share them.
    """
    return _by_ops(a, b, block, warps)
