"""Softmax in Triton: rows of any width, the largest element and the sum found in one pass over blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.guards import UP_TO_FLOAT32, takes
from kernels.softmax.registration import recorded
from kernels.softmax.rows import over_rows, refuse_more_rows

BLOCK = 4096  # elements; a narrower row gets the power of two that holds it


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


@triton.jit
def backward_kernel(g, y, dx, cols, BLOCK: tl.constexpr):  # g, y, dx: [rows, cols] contiguous; grid: (rows,)
    o_row = tl.program_id(0).to(tl.int64) * cols
    o_col = tl.arange(0, BLOCK)
    b_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        m_col = start + o_col < cols
        b_g = tl.load(g + o_row + start + o_col, mask=m_col, other=0.0).to(tl.float32)
        b_y = tl.load(y + o_row + start + o_col, mask=m_col, other=0.0).to(tl.float32)
        b_sum += b_g * b_y
    dot = tl.sum(b_sum, axis=0)
    last = (cols - 1) // BLOCK * BLOCK
    for done in range(0, cols, BLOCK):
        start = last - done  # what was read last is what the cache still holds
        m_col = start + o_col < cols
        b_g = tl.load(g + o_row + start + o_col, mask=m_col, other=0.0).to(tl.float32)
        b_y = tl.load(y + o_row + start + o_col, mask=m_col, other=0.0).to(tl.float32)
        b_dx = b_y * (b_g - dot)
        tl.store(dx + o_row + start + o_col, b_dx.to(dx.dtype.element_ty), mask=m_col)


def _forward(x: torch.Tensor, num_warps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    _launch(softmax_kernel, (x, out), num_warps)
    return out


_differentiable = torch.library.custom_op("kernels::softmax_triton_online", _forward, mutates_args=())


@torch.library.custom_op("kernels::softmax_triton_online_backward", mutates_args=())
def _backward(grad: torch.Tensor, y: torch.Tensor, num_warps: int) -> torch.Tensor:
    dx = torch.empty_like(y)
    _launch(backward_kernel, (grad.contiguous(), y, dx), num_warps)
    return dx


_rows = recorded(_differentiable, _forward, _backward)


def softmax(x: torch.Tensor, dim: int = -1, num_warps: int = 8) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 tensor of any shape along `dim`.

    Memory is read twice where a row does not fit the cache. An input whose slices are not contiguous is
    copied first; the copy is part of the call. Raises NotImplementedError for 2^31 rows, or another dtype.
    """
    takes("triton_online", x, dtypes=UP_TO_FLOAT32)
    return over_rows(lambda rows: _rows(rows, num_warps), x, dim)


def _launch(kernel, tensors: tuple[torch.Tensor, ...], num_warps: int) -> None:
    """One program for each row of the tensors, which are contiguous and of one shape."""
    out = tensors[-1]
    if out.numel() == 0:
        return
    cols = out.shape[-1]
    rows = out.numel() // cols
    refuse_more_rows("triton_online", rows)
    block = min(BLOCK, triton.next_power_of_2(cols))
    with torch.cuda.device_of(out):
        kernel[(rows,)](*tensors, cols, BLOCK=block, num_warps=num_warps)
