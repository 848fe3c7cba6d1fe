"""Euclidean distances on tensor cores, each right to float32's own rule: near pairs are computed again.

|a|^2 + |b|^2 - 2 a.b with a.b from three float16 products (`mma_operands`), accumulated in float32. What that
cannot tell apart, pairs whose squared distance is under `tau` of |a|^2 + |b|^2, is computed from differences
(`mma_near`). Every distance is then within 32 eps of the right one, by the bound behind `threshold`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.cdist.mma_near import recompute
from kernels.cdist.mma_operands import pair_up, prepare, threshold
from kernels.guards import UP_TO_FLOAT32

PROGRAMS = (1 << 31) - 1  # CUDA's limit for the x dim of a grid


@triton.jit
def _place(i_tile, tiles_n, tiles_m, GROUP: tl.constexpr):
    """Batch, row and column of a tile: GROUP rows of tiles together, so that they share columns in the cache."""
    i_batch = i_tile // (tiles_n * tiles_m)
    i_tile = i_tile % (tiles_n * tiles_m)
    first = i_tile // (GROUP * tiles_m) * GROUP
    rows = tl.minimum(tiles_n - first, GROUP)
    i_in = i_tile % (GROUP * tiles_m)
    return i_batch, first + i_in % rows, i_in // rows


@triton.jit
def _finish(b_acc, norm1, norm2, unit, out, work, count, i_batch, i_n, i_m, n, m, rows1, rows2, TAU, ABS,
            BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, PARTS: tl.constexpr, TMA: tl.constexpr):  # fmt: skip
    """Products to distances; NaN for near pairs, and their tile on the list. PARTS halves save registers."""
    if PARTS == 1:
        near = _store(b_acc, norm1, norm2, unit, out, i_batch, i_n * BLOCK_N, i_m * BLOCK_M, n, m, rows1, rows2,
                      TAU, ABS, BLOCK_N, BLOCK_M, TMA)  # fmt: skip
    else:
        half: tl.constexpr = BLOCK_M // 2
        b_left, b_right = b_acc.reshape(BLOCK_N, 2, half).permute(0, 2, 1).split()
        near = _store(b_left, norm1, norm2, unit, out, i_batch, i_n * BLOCK_N, i_m * BLOCK_M, n, m, rows1, rows2,
                      TAU, ABS, BLOCK_N, half, TMA)  # fmt: skip
        near |= _store(b_right, norm1, norm2, unit, out, i_batch, i_n * BLOCK_N, i_m * BLOCK_M + half, n, m, rows1, rows2,
                      TAU, ABS, BLOCK_N, half, TMA)  # fmt: skip
    if near:
        slot = tl.atomic_add(count, 1)
        tiles_n, tiles_m = tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M)
        tl.store(work + slot, (i_batch * tiles_n + i_n) * tiles_m + i_m)


@triton.jit
def _root(b_square):
    """To half a unit in the last place and a little: Newton's step from the approximate inverse; NaN below 0."""
    b_inverse = tl.rsqrt(b_square)
    b_root = b_square * b_inverse
    return b_root + (b_square - b_root * b_root) * (0.5 * b_inverse)


@triton.jit
def _store(b_acc, norm1, norm2, unit, out, i_batch, s_n, s_m, n, m, rows1, rows2, TAU, ABS,
            BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, TMA: tl.constexpr):  # fmt: skip
    o_n, o_m = s_n + tl.arange(0, BLOCK_N), s_m + tl.arange(0, BLOCK_M)
    m_n, m_m = o_n < n, o_m < m
    b_n1 = tl.load(norm1 + i_batch * rows1 + o_n, mask=m_n, other=1e30)
    b_n2 = tl.load(norm2 + i_batch * rows2 + o_m, mask=m_m, other=1e30)
    size = tl.load(unit) * tl.load(unit)
    # one norm after the other: only one of the two roundings is as large as their sum
    b_square = (b_n1[:, None] - (2.0 * size) * b_acc) + b_n2[None, :]
    far = b_square > (TAU * b_n1 + ABS * size)[:, None] + (TAU * b_n2)[None, :]  # not so for NaN
    b_square = tl.where(far, b_square, -1.0)
    b_out = _root(b_square)
    if TMA:
        out.store([i_batch * n + s_n, s_m], b_out)
    else:
        o_out = out + (i_batch.to(tl.int64) * n + o_n)[:, None] * m + o_m[None, :]
        tl.store(o_out, b_out.to(out.dtype.element_ty), mask=m_n[:, None] & m_m[None, :])
    return tl.min(tl.min(b_square, 1), 0) < 0


@triton.jit
def product_kernel(  # grid: (tiles,); a, b: descriptors of [rows, PIECES * depth]
    a, b, norm1, norm2, unit, out, work, count, n, m, rows1, rows2, depth, TAU, ABS,
    PIECES: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PARTS: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """rows1 and rows2 are rows between batches: n and m, or 0 where all batches share one set of points."""
    i_batch, i_n, i_m = _place(tl.program_id(0), tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M), GROUP)
    row1, row2 = i_batch * rows1 + i_n * BLOCK_N, i_batch * rows2 + i_m * BLOCK_M
    steps = depth // BLOCK_K
    b_acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for step in range((2 * PIECES - 1) * steps):
        # lo*hi, hi*lo, then hi*hi: the sum is small while it takes the small terms, and loses nothing of them
        k = step % steps * BLOCK_K
        if PIECES == 2:
            k1 = tl.where(step < steps, depth, 0) + k
            k2 = tl.where((step >= steps) & (step < 2 * steps), depth, 0) + k
        else:
            k1, k2 = k, k
        b_acc = tl.dot(a.load([row1, k1]), b.load([row2, k2]).T, b_acc)
    _finish(b_acc, norm1, norm2, unit, out, work, count, i_batch, i_n, i_m, n, m, rows1, rows2, TAU, ABS,
            BLOCK_N, BLOCK_M, PARTS, TMA)  # fmt: skip


@triton.jit
def resident_kernel(  # the same for depth == BLOCK_K; grid: (rows of tiles * columns of runs,)
    a, b, norm1, norm2, unit, out, work, count, n, m, rows1, rows2, depth, TAU, ABS,
    PIECES: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    RUN: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """A program keeps its rows of a in shared memory and passes RUN tiles of b along them."""
    tiles_n, tiles_m = tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M)
    runs = tl.cdiv(tiles_m, RUN)
    i_program = tl.program_id(0)
    i_n = i_program % tiles_n
    i_run = i_program // tiles_n % runs
    i_batch = i_program // (tiles_n * runs)
    row1 = i_batch * rows1 + i_n * BLOCK_N
    b_hi1 = a.load([row1, 0])
    if PIECES == 2:
        b_lo1 = a.load([row1, BLOCK_K])
    for i_m in tl.range(i_run * RUN, tl.minimum(i_run * RUN + RUN, tiles_m), num_stages=STAGES):
        row2 = i_batch * rows2 + i_m * BLOCK_M
        b_hi2 = b.load([row2, 0])
        b_acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        if PIECES == 2:
            b_lo2 = b.load([row2, BLOCK_K])
            b_acc = tl.dot(b_lo1, b_hi2.T, b_acc)
            b_acc = tl.dot(b_hi1, b_lo2.T, b_acc)
        b_acc = tl.dot(b_hi1, b_hi2.T, b_acc)
        _finish(b_acc, norm1, norm2, unit, out, work, count, i_batch, i_n, i_m, n, m, rows1, rows2, TAU, ABS,
                BLOCK_N, BLOCK_M, PARTS, TMA)  # fmt: skip


def near_floor(depth: int) -> float:
    """A squared distance, in units, below which lo's spacing of 2^-24 counts: 2^-25 for each coordinate."""
    return depth / 256


def cdist(
    x1: torch.Tensor,
    x2: torch.Tensor,
    p: float = 2.0,
    block_n: int = 128,
    block_m: int = 128,
    num_warps: int = 4,
    num_stages: int = 3,
) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] in the inputs' dtype (float32, bfloat16, float16), p = 2.

    Any strides. Inputs that share their batch dims or have none are read where they are; other broadcasts
    copy the points first. Raises NotImplementedError for another p or dtype and for autograd.
    """
    x1, x2, out, shape = pair_up("triton_mma", x1, x2, p, UP_TO_FLOAT32)
    if out.numel() and x1.shape[2]:
        launch(x1, x2, out, block_n, block_m, num_warps, num_stages)
    return out.reshape(shape)


def launch(x1, x2, out, block_n, block_m, num_warps, num_stages, kernel="product", run=16, group=8, parts=1, tma=False):
    batch, n, m = out.shape
    d = x1.shape[2]
    tiles_n, tiles_m = triton.cdiv(n, block_n), triton.cdiv(m, block_m)
    tiles = batch * tiles_n * tiles_m
    pieces = 2 if x1.dtype == torch.float32 else 1
    todo = torch.empty(1 + tiles, dtype=torch.int32, device=x1.device)
    count, work = todo[:1], todo[1:]
    with torch.cuda.device_of(x1):
        ops = prepare(x1, x2, count, pieces)
        depth = ops.depth
        block_k = depth if kernel == "resident" else 64
        a = TensorDescriptor.from_tensor(ops.pieces1, [block_n, block_k])
        b = TensorDescriptor.from_tensor(ops.pieces2, [block_m, block_k])
        step1, step2 = (x.shape[1] if x.shape[0] > 1 else 0 for x in (x1, x2))
        args = (a, b, ops.norm1, ops.norm2, ops.unit, TensorDescriptor.from_tensor(out.view(-1, m), [block_n, block_m // parts]) if tma else out, work, count, n, m, step1, step2, depth,
                threshold(depth), near_floor(depth))
        blocks = {"PIECES": pieces, "BLOCK_N": block_n, "BLOCK_M": block_m, "BLOCK_K": block_k, "PARTS": parts, "TMA": tma}
        if kernel == "resident":
            grid = batch * tiles_n * triton.cdiv(tiles_m, run)
            resident_kernel[(grid,)](*args, **blocks, RUN=run, STAGES=num_stages, num_warps=num_warps)
        else:
            product_kernel[(tiles,)](*args, **blocks, GROUP=group, num_warps=num_warps, num_stages=num_stages)
        recompute(x1, x2, out, todo, block_n, block_m)
