"""Euclidean distances on tensor cores, each right to float32's own rule: near pairs are computed again.

|a|^2 + |b|^2 - 2 a.b with a.b from three float16 products (`mma_operands`), accumulated in float32. What that
cannot tell apart, pairs whose squared distance is under `threshold` of |a|^2 + |b|^2, is computed from
differences (`mma_near`).
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.cdist.mma_near import recompute
from kernels.cdist.mma_operands import DEPTH, near_floor, pair_up, prepare, threshold
from kernels.guards import UP_TO_FLOAT32

DEEP = 128  # coordinates of a deep tile
SHALLOW = 128  # coordinates, to which the roots of one tile take as long as the products of another
TILES = (1 << 31) - 1  # CUDA's limit for the x dim of a grid, and what the list of tiles counts to
GROUP = 8  # rows of tiles that are worked on together


@triton.jit
def _place(i_tile, tiles_n, tiles_m, GROUP: tl.constexpr):
    """Batch, row and column of a tile: GROUP rows of tiles go together, and share columns in the cache."""
    i_batch = i_tile // (tiles_n * tiles_m)
    i_tile = i_tile % (tiles_n * tiles_m)
    first = i_tile // (GROUP * tiles_m) * GROUP
    rows = tl.minimum(tiles_n - first, GROUP)
    i_in = i_tile % (GROUP * tiles_m)
    return i_batch, first + i_in % rows, i_in // rows


@triton.jit
def _root(b_square):
    """To about half a unit in the last place: Newton's step from the approximate inverse; NaN below 0."""
    b_inverse = tl.rsqrt(b_square)
    b_root = b_square * b_inverse
    return b_root + (b_square - b_root * b_root) * (0.5 * b_inverse)


@triton.jit(do_not_specialize=["n", "rows1", "rows2"])
def product_kernel(  # grid: (tiles,); a, b: descriptors of [rows, PIECES * depth]; out: [b, n, m]
    a, b, norm1, norm2, unit, out, todo, n, m, rows1, rows2, depth, tau, floor,
    PIECES: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """rows1 and rows2 are the rows between batches: n and m, or 0 where all batches read the same points."""
    tiles_n, tiles_m = tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M)
    i_batch, i_n, i_m = _place(tl.program_id(0), tiles_n, tiles_m, GROUP)
    row1, row2 = i_batch * rows1 + i_n * BLOCK_N, i_batch * rows2 + i_m * BLOCK_M
    steps = depth // BLOCK_K
    b_acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for step in range((2 * PIECES - 1) * steps):
        # lo*hi, hi*lo, then hi*hi: small terms meet a small sum, which is truncated at its own last place
        k = step % steps * BLOCK_K
        k1, k2 = k, k
        if PIECES == 2:
            k1 = k + tl.where(step < steps, depth, 0)
            k2 = k + tl.where((step >= steps) & (step < 2 * steps), depth, 0)
        b_x1, b_x2 = a.load([row1, k1]), b.load([row2, k2]).T
        if PROMOTE:  # added up outside the tensor core: the argument keeps the compiler from merging the two
            b_acc += tl.dot(b_x1, b_x2, max_num_imprecise_acc=BLOCK_K)
        else:
            b_acc = tl.dot(b_x1, b_x2, b_acc)

    o_n, o_m = i_n * BLOCK_N + tl.arange(0, BLOCK_N), i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    m_n, m_m = o_n < n, o_m < m
    b_norm1 = tl.load(norm1 + i_batch * rows1 + o_n, mask=m_n, other=1e30)
    b_norm2 = tl.load(norm2 + i_batch * rows2 + o_m, mask=m_m, other=1e30)
    size = tl.load(unit) * tl.load(unit)
    # one norm after the other: only one of the two roundings is as large as their sum
    b_square = (b_norm1[:, None] - (2.0 * size) * b_acc) + b_norm2[None, :]
    far = b_square > (tau * b_norm1 + floor * size)[:, None] + (tau * b_norm2)[None, :]  # not so for NaN
    b_square = tl.where(far, b_square, -1.0)
    o_out = out + (i_batch.to(tl.int64) * n + o_n)[:, None] * m + o_m[None, :]
    tl.store(o_out, _root(b_square).to(out.dtype.element_ty), mask=m_n[:, None] & m_m[None, :])
    if tl.min(b_square) < 0:
        slot = tl.atomic_add(todo, 1) + 1
        tl.store(todo + slot, (i_batch * tiles_n + i_n) * tiles_m + i_m)


def _blocks(depth: int, holds_deep: bool) -> tuple[int, int, int, int, int]:
    """Rows, columns and depth of a tile, warps and stages, as measured on an H200.

    Up to 128 coordinates writing is half of the time, and four small tiles a processor overlap it better
    with products; beyond, a larger tile reads less, and a deeper one is added up outside the tensor core
    half as often, where shared memory holds three of them.
    """
    if depth <= SHALLOW:
        return 64, 128, DEPTH, 4, 2
    return 128, 128, DEEP if holds_deep and depth % DEEP == 0 else DEPTH, 8, 3


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] in the inputs' dtype (float32, bfloat16, float16), p = 2.

    Any strides. Inputs that share their batch dims or have none are read where they are; other broadcasts
    copy the points first. Half types take one product instead of three. Raises NotImplementedError for
    another p or dtype, for autograd, and for more than 2^31 - 1 tiles.
    """
    x1, x2, shape = pair_up("triton_mma", x1, x2, p, UP_TO_FLOAT32)
    if x1.numel() == 0 or x2.numel() == 0:
        return x1.new_zeros(shape)
    return torch.ops.kernels.cdist_triton_mma(x1, x2).reshape(shape)


@torch.library.custom_op("kernels::cdist_triton_mma", mutates_args=())
def _distances(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """[b1, n, d], [b2, m, d], neither empty, b1 and b2 equal or 1 -> [b, n, m]."""
    out = _empty(x1, x2)
    _launch(x1, x2, out)
    return out


@_distances.register_fake
def _empty(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return x1.new_empty(max(x1.shape[0], x2.shape[0]), x1.shape[1], x2.shape[1])


def _launch(x1: torch.Tensor, x2: torch.Tensor, out: torch.Tensor) -> None:
    batch, n, m = out.shape
    pieces = 2 if x1.dtype == torch.float32 else 1
    depth = triton.cdiv(x1.shape[2], DEPTH) * DEPTH
    block_n, block_m, block_k, warps, stages = _blocks(depth, _holds_deep(x1.device))
    tiles = batch * triton.cdiv(n, block_n) * triton.cdiv(m, block_m)
    if tiles > TILES:
        raise NotImplementedError(f"triton_mma launches at most {TILES} tiles, not {tiles}.")
    promote = depth > SHALLOW
    tau = threshold(block_k, depth // block_k) if promote else threshold(depth)
    floor = near_floor(depth)
    todo = torch.empty(1 + tiles, dtype=torch.int32, device=x1.device)
    with torch.cuda.device_of(x1):
        made = prepare(x1, x2, todo, pieces)
        a = TensorDescriptor.from_tensor(made.pieces1, [block_n, block_k])
        b = TensorDescriptor.from_tensor(made.pieces2, [block_m, block_k])
        step1, step2 = (x.shape[1] if x.shape[0] > 1 else 0 for x in (x1, x2))
        product_kernel[(tiles,)](
            a, b, made.norm1, made.norm2, made.unit, out, todo, n, m, step1, step2, depth, tau, floor,
            PIECES=pieces, BLOCK_N=block_n, BLOCK_M=block_m, BLOCK_K=block_k, GROUP=GROUP, PROMOTE=promote,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        recompute(x1, x2, out, todo, block_n, block_m)


@functools.cache
def _holds_deep(device: torch.device) -> bool:
    """Whether a block may have 192 KiB of shared memory: Hopper's and the data centre's Blackwell."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10)
