"""Softmax in Triton: rows of any width, the largest element and the sum found in one pass over blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax.rows import over_rows

BLOCK = 4096  # elements; a narrower row gets the power of two that holds it
PROGRAMS = (1 << 31) - 1  # CUDA's limit for the x dim of a grid


@triton.jit
def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):  # x, out: [rows, cols] contiguous; grid: (rows,)
    o_row = tl.program_id(0).to(tl.int64) * cols
    o_col = tl.arange(0, BLOCK)
    # Each lane keeps its own maximum and sum, so that only the end of the row needs an exchange. The lowest
    # float stands for -inf, whose difference with itself would be NaN.
    b_largest = tl.full((BLOCK,), -3.4028234663852886e38, tl.float32)
    b_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        m_col = start + o_col < cols
        b_x = tl.load(x + o_row + start + o_col, mask=m_col, other=-float("inf")).to(tl.float32)
        b_more = tl.maximum(b_largest, b_x)
        b_sum = b_sum * tl.exp(b_largest - b_more) + tl.exp(b_x - b_more)
        b_largest = b_more
    largest = tl.max(b_largest, axis=0)
    scale = 1.0 / tl.sum(b_sum * tl.exp(b_largest - largest), axis=0)
    for start in range(0, cols, BLOCK):
        m_col = start + o_col < cols
        b_x = tl.load(x + o_row + start + o_col, mask=m_col, other=-float("inf")).to(tl.float32)
        b_y = tl.exp(b_x - largest) * scale
        tl.store(out + o_row + start + o_col, b_y.to(out.dtype.element_ty), mask=m_col)


def softmax(x: torch.Tensor, dim: int = -1, num_warps: int = 8) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 tensor of any shape along `dim`.

    Memory is read twice where a row does not fit the cache. An input whose slices are not contiguous is
    copied first; the copy is part of the call. Raises NotImplementedError for 2^31 rows, another dtype,
    or where autograd would record the call.
    """
    forward_only("triton_online", x, dtypes=UP_TO_FLOAT32)
    return over_rows(lambda rows: _launch(rows, num_warps), x, dim)


def _launch(x: torch.Tensor, num_warps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    cols = x.shape[-1]
    rows = x.numel() // cols
    if rows > PROGRAMS:
        raise NotImplementedError(f"triton_online launches at most {PROGRAMS} rows, not {rows}.")
    block = min(BLOCK, triton.next_power_of_2(cols))
    with torch.cuda.device_of(x):
        softmax_kernel[(rows,)](x, out, cols, BLOCK=block, num_warps=num_warps)
    return out
