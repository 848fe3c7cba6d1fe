"""Softmax in Triton down the columns: all of `dim` times some neighbouring columns in one block."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax.rows import along_dim

MOST = 1 << 16  # elements of a block: 64 for each of 1024 threads; more are read twice
STEP = 4096  # elements that the kernel that reads twice takes at once
PROGRAMS = (1 << 31) - 1  # CUDA's limit for the x dim of a grid


# x, out: [outer, length, inner] contiguous; grid: (outer * tiles,). FLAT: a tile is what an outer index has,
# of W = inner columns, and is read as one row, however narrow.
@triton.jit
def tile_kernel(x, out, length, inner, tiles, L: tl.constexpr, W: tl.constexpr, FLAT: tl.constexpr):
    i_outer = tl.program_id(0) // tiles
    i_tile = tl.program_id(0) % tiles
    o_base = i_outer.to(tl.int64) * length * inner
    if FLAT:
        o_x = tl.arange(0, L * W)
        m_x = o_x < length * inner
        b_x = tl.load(x + o_base + o_x, mask=m_x, other=-float("inf")).to(tl.float32)
        b_x = tl.reshape(b_x, (L, W))
    else:
        o_l = tl.arange(0, L)[:, None]
        o_w = tl.arange(0, W)[None, :]
        o_first = i_tile.to(tl.int64) * W  # inner may be beyond 2^31
        o_base += o_first
        o_x = o_l.to(tl.int64) * inner + o_w
        m_x = (o_l < length) & (o_w < inner - o_first)
        b_x = tl.load(x + o_base + o_x, mask=m_x, other=-float("inf")).to(tl.float32)
    b_power = tl.exp(b_x - tl.max(b_x, axis=0)[None, :])
    b_y = b_power / tl.sum(b_power, axis=0)[None, :]
    if FLAT:
        b_y = tl.reshape(b_y, (L * W,))
    tl.store(out + o_base + o_x, b_y.to(out.dtype.element_ty), mask=m_x)


@triton.jit
def online_kernel(x, out, length, inner, tiles, L: tl.constexpr, W: tl.constexpr):
    i_outer = tl.program_id(0) // tiles
    i_tile = tl.program_id(0) % tiles
    o_base = i_outer.to(tl.int64) * length * inner
    o_l = tl.arange(0, L)[:, None]
    o_w = tl.arange(0, W)[None, :]
    o_first = i_tile.to(tl.int64) * W
    o_base += o_first
    m_w = o_w < inner - o_first
    # Each element of a block keeps its own maximum and sum until the end. The lowest float stands for -inf,
    # whose difference with itself would be NaN.
    b_largest = tl.full((L, W), -3.4028234663852886e38, tl.float32)
    b_sum = tl.zeros((L, W), tl.float32)
    for start in range(0, length, L):
        m_x = (o_l < length - start) & m_w
        o_x = o_base + (start + o_l.to(tl.int64)) * inner + o_w
        b_x = tl.load(x + o_x, mask=m_x, other=-float("inf")).to(tl.float32)
        b_more = tl.maximum(b_largest, b_x)
        b_sum = b_sum * tl.exp(b_largest - b_more) + tl.exp(b_x - b_more)
        b_largest = b_more
    largest = tl.max(b_largest, axis=0)[None, :]
    scale = 1.0 / tl.sum(b_sum * tl.exp(b_largest - largest), axis=0)[None, :]
    for start in range(0, length, L):
        m_x = (o_l < length - start) & m_w
        o_x = o_base + (start + o_l.to(tl.int64)) * inner + o_w
        b_x = tl.load(x + o_x, mask=m_x, other=-float("inf")).to(tl.float32)
        b_y = tl.exp(b_x - largest) * scale
        tl.store(out + o_x, b_y.to(out.dtype.element_ty), mask=m_x)


def softmax(x: torch.Tensor, dim: int = -1, chunk: int = 64, num_warps: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 tensor of any shape along `dim`.

    A program has `chunk` bytes (a power of two) of neighbouring columns, or down to 32 where more would not
    fit its registers; columns too long for that are read twice. `num_warps` 0 gives a warp to each 1024
    elements of a block, 4 at least and 32 at most. An input that is not contiguous is copied first; the copy
    is part of the call. Raises NotImplementedError for 2^31 programs, another dtype, or where autograd would
    record the call.
    """
    forward_only("triton_strided", x, dtypes=UP_TO_FLOAT32)
    return along_dim(lambda t, d: _launch(t.contiguous(), d, chunk, num_warps), x, dim)


def _launch(x: torch.Tensor, dim: int, chunk: int, num_warps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    outer, length, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    rows, width = _block(length, inner, x.itemsize, chunk)
    fits = rows * width <= MOST
    if not fits:
        width = min(triton.next_power_of_2(inner), 128 // x.itemsize)
        rows = STEP // width
    tiles = triton.cdiv(inner, width)
    if outer * tiles > PROGRAMS:
        raise NotImplementedError(
            f"triton_strided launches at most {PROGRAMS} programs, not {outer * tiles}."
        )
    warps = num_warps or min(32, max(4, rows * width // 1024))
    sizes = {"L": rows, "W": width, "num_warps": warps}
    with torch.cuda.device_of(x):
        if fits:
            tile_kernel[(outer * tiles,)](x, out, length, inner, tiles, FLAT=width == inner, **sizes)
        else:
            online_kernel[(outer * tiles,)](x, out, length, inner, tiles, **sizes)
    return out


def _block(length: int, inner: int, itemsize: int, chunk: int) -> tuple[int, int]:
    """Rows and columns of a block that holds `length`: powers of two, wider where the length is short."""
    rows = triton.next_power_of_2(length)
    most = triton.next_power_of_2(inner)
    width = min(most, max(1, chunk // itemsize))
    while rows * width > MOST and width * itemsize > 32:
        width //= 2
    while width < most and rows * 2 * width <= STEP:
        width *= 2
    return rows, width
