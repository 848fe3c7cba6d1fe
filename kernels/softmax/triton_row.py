"""Softmax in Triton: one row for each program, the whole row in one block."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.guards import UP_TO_FLOAT32, takes
from kernels.softmax.registration import recorded
from kernels.softmax.rows import over_rows, refuse_more_rows, refuse_wider

WIDEST = 1 << 20  # elements: Triton's limit for one block
WIDEST_WITH_GRADIENT = WIDEST // 2  # the backward holds two rows


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


@triton.jit
def backward_kernel(g, y, dx, cols, BLOCK: tl.constexpr):  # g, y, dx: [rows, cols] contiguous; grid: (rows,)
    i_row = tl.program_id(0).to(tl.int64)
    o_col = tl.arange(0, BLOCK)
    m_col = o_col < cols
    o_row = i_row * cols + o_col
    b_g = tl.load(g + o_row, mask=m_col, other=0.0).to(tl.float32)
    b_y = tl.load(y + o_row, mask=m_col, other=0.0).to(tl.float32)
    b_dx = b_y * (b_g - tl.sum(b_g * b_y, axis=0))
    tl.store(dx + o_row, b_dx.to(dx.dtype.element_ty), mask=m_col)


def _forward(x: torch.Tensor, num_warps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    _launch(softmax_kernel, (x, out), num_warps, held=1)
    return out


_differentiable = torch.library.custom_op("kernels::softmax_triton_row", _forward, mutates_args=())


@torch.library.custom_op("kernels::softmax_triton_row_backward", mutates_args=())
def _backward(grad: torch.Tensor, y: torch.Tensor, num_warps: int) -> torch.Tensor:
    dx = torch.empty_like(y)
    _launch(backward_kernel, (grad.contiguous(), y, dx), num_warps, held=2)
    return dx


_rows = recorded(_differentiable, _forward, _backward)


def softmax(x: torch.Tensor, dim: int = -1, num_warps: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 tensor of any shape along `dim`.

    `num_warps` 0 gives a warp to each 2048 elements that a program holds, 4 at least and 32 at most.
    An input whose slices are not contiguous is copied first; the copy is part of the call.
    Raises NotImplementedError for a slice of more than 1048576 elements (524288 where autograd records the
    call), 2^31 rows, or another dtype.
    """
    takes("triton_row", x, dtypes=UP_TO_FLOAT32)
    recording = x.requires_grad and torch.is_grad_enabled()
    refuse_wider("triton_row", x, dim, WIDEST_WITH_GRADIENT if recording else WIDEST)
    return over_rows(lambda rows: _rows(rows, num_warps), x, dim)


def _launch(kernel, tensors: tuple[torch.Tensor, ...], num_warps: int, held: int) -> None:
    """One program for each row of the tensors, contiguous ones of one shape; it holds `held` rows."""
    out = tensors[-1]
    if out.numel() == 0:
        return
    cols = out.shape[-1]
    rows = out.numel() // cols
    refuse_more_rows("triton_row", rows)
    block = triton.next_power_of_2(cols)
    with torch.cuda.device_of(out):
        kernel[(rows,)](*tensors, cols, BLOCK=block, num_warps=num_warps or _warps(held * block))


def _warps(elements: int) -> int:
    """At most 64 elements a thread while 32 warps reach: more fill its registers and compile for minutes."""
    return min(32, max(4, elements // 2048))
