"""GeLU in Triton: one block of elements a program."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gelu.registration import gelu_by
from kernels.gelu.triton_map import launch
from kernels.launching import laid_out_as, operator

BLOCK = 1024
# Right operands only: the interpreter makes a constexpr of constexpr * block.
C = tl.constexpr(0.7978845608028654)  # sqrt(2 / pi)
K = tl.constexpr(0.044715)
R = tl.constexpr(0.7071067811865476)  # sqrt(1 / 2)
D = tl.constexpr(0.3989422804014327)  # 1 / sqrt(2 * pi)


@triton.jit
def _widen(b_x):
    return b_x if b_x.dtype == tl.float64 else b_x.to(tl.float32)


@triton.jit
def _sigmoid(b_x):  # exp may reach infinity, and 1 / infinity is the right 0
    return 1 / (1 + tl.exp(-b_x))


@triton.jit
def _forward(x, y, n, TANH: tl.constexpr, BLOCK: tl.constexpr):  # x, y: (n,)
    i_block = tl.program_id(0).to(tl.int64)
    o = i_block * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    b_x = _widen(tl.load(x + o, mask=m, other=0.0))
    if TANH:  # (1 + tanh(u)) / 2 is sigmoid(2u)
        b_y = b_x * _sigmoid((b_x + b_x * b_x * b_x * K) * (2 * C))
    else:
        b_y = 0.5 * b_x * (1 + tl.erf(b_x * R))
    tl.store(y + o, b_y.to(y.dtype.element_ty), mask=m)


@triton.jit
def _backward(g, x, dx, n, TANH: tl.constexpr, BLOCK: tl.constexpr):  # g, x, dx: (n,)
    i_block = tl.program_id(0).to(tl.int64)
    o = i_block * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    b_x = _widen(tl.load(x + o, mask=m, other=0.0))
    b_g = _widen(tl.load(g + o, mask=m, other=0.0))
    if TANH:
        b_s = _sigmoid((b_x + b_x * b_x * b_x * K) * (2 * C))
        b_t = b_x * (b_s * (1 - b_s))  # first, so that x * x meets a 0 before it overflows
        b_d = b_s + (b_t + b_t * b_x * b_x * (3 * K)) * (2 * C)
    else:
        b_d = 0.5 * (1 + tl.erf(b_x * R)) + b_x * (tl.exp(-0.5 * b_x * b_x) * D)
    tl.store(dx + o, (b_g * b_d).to(dx.dtype.element_ty), mask=m)


def _run(x: torch.Tensor, tanh: bool) -> torch.Tensor:
    y = torch.empty_like(x)
    launch(_forward, (laid_out_as(x, y), y), BLOCK, TANH=tanh)
    return y


for _name in ("kernels::gelu_triton_block", "kernels::gelu_triton_block_forward"):
    operator(_forward)(_name, mutates_args=())(_run)


@operator(_backward)("kernels::gelu_triton_block_backward", mutates_args=())
def _run_backward(grad: torch.Tensor, x: torch.Tensor, tanh: bool) -> torch.Tensor:
    dx = torch.empty_like(x)
    launch(_backward, (laid_out_as(grad, dx), laid_out_as(x, dx), dx), BLOCK, TANH=tanh)
    return dx


gelu = gelu_by("gelu_triton_block", "triton_block")
