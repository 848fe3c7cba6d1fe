"""Softmax in Triton: one row for each program, the whole row in one block."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax.rows import over_rows

WIDEST = 1 << 20  # elements: Triton's limit for one block
PROGRAMS = (1 << 31) - 1  # CUDA's limit for the x dim of a grid


@triton.jit
def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):  # x, out: [rows, cols] contiguous; grid: (rows,)
    i_row = tl.program_id(0).to(tl.int64)
    o_col = tl.arange(0, BLOCK)
    m_col = o_col < cols
    o_row = i_row * cols + o_col
    b_x = tl.load(x + o_row, mask=m_col, other=-float("inf")).to(tl.float32)
    b_power = tl.exp(b_x - tl.max(b_x, axis=0))
    b_y = b_power / tl.sum(b_power, axis=0)
    tl.store(out + o_row, b_y.to(out.dtype.element_ty), mask=m_col)


def softmax(x: torch.Tensor, dim: int = -1, num_warps: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 tensor of any shape along `dim`.

    `num_warps` 0 gives a warp to each 2048 elements of the block, 4 at least and 32 at most.
    An input whose slices are not contiguous is copied first; the copy is part of the call.
    Raises NotImplementedError for a slice of more than 1048576 elements, 2^31 rows, another dtype, or
    where autograd would record the call.
    """
    forward_only("triton_row", x, dtypes=UP_TO_FLOAT32)
    width = x.shape[dim] if x.dim() else 1
    if width > WIDEST:
        raise NotImplementedError(f"triton_row holds at most {WIDEST} elements of a row, not {width}.")
    return over_rows(lambda rows: _launch(rows, num_warps), x, dim)


def _launch(x: torch.Tensor, num_warps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    cols = x.shape[-1]
    rows = x.numel() // cols
    if rows > PROGRAMS:
        raise NotImplementedError(f"triton_row launches at most {PROGRAMS} rows, not {rows}.")
    block = triton.next_power_of_2(cols)
    with torch.cuda.device_of(x):
        softmax_kernel[(rows,)](x, out, cols, BLOCK=block, num_warps=num_warps or _warps(block))
    return out


def _warps(block: int) -> int:
    """At most 64 elements a thread while 32 warps reach: more fill its registers and compile for minutes."""
    return min(32, max(4, block // 2048))
