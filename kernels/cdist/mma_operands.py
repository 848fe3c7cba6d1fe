"""Points made ready for tensor cores: centred, scaled by a power of two, split into two float16 pieces.

With a' = (a - centre) / unit, hi = fp16(a') and lo = fp16(a' - hi) hold 22 bits of a', as the two TF32 pieces
of 3xTF32 do, on a unit that is nearly twice as fast. Distances do not change with the centre, and the norm is
that of hi + lo, so that what rounding took from a point it took from its norm and its products alike: the
points have moved by at most 2^-22 of their size, and their distances are still those of points.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.guards import forward_only

SAMPLE = 32  # rows of each input that centre and unit are taken from
DEPTH = 64  # float16 a tile of operands is deep: 128 bytes, the widest swizzle of shared memory
BLOCK_ROWS = 16
# A sampled coordinate ends below 2^10: 6 bits under float16's largest, and lo's spacing of 2^-24 lies
# 34 bits below it.
TOP = tl.constexpr(9)
MOST = tl.constexpr(40)
LARGEST = tl.constexpr(6.0e4)


class Operands(NamedTuple):
    """What the product kernel reads. Rows are those of all batches, one after the other."""

    pieces1: torch.Tensor  # [rows1, pieces * depth] float16: hi, then lo
    pieces2: torch.Tensor
    norm1: torch.Tensor  # [rows1] float32: |unit * (hi + lo)|^2; NaN where float16 cannot hold the row
    norm2: torch.Tensor
    unit: torch.Tensor  # [1] float32: the length of 1
    depth: int  # d rounded up to whole tiles


@triton.jit
def _load(x, o_row, n, sb, sn, sd, o_d, m_row, d):
    """Points x[b, i, :] of rows b * n + i, in float32: [rows, coordinates]."""
    o = (o_row // n) * sb + (o_row % n) * sn
    mask = m_row[:, None] & (o_d < d)[None, :]
    return tl.load(x + o[:, None] + o_d[None, :] * sd, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _finite(b_x):
    return tl.where(tl.abs(b_x) <= 3.4028235e38, b_x, 0.0)


@triton.jit(do_not_specialize=["rows1", "n", "sb1", "sn1", "rows2", "m", "sb2", "sn2", "d"])
def sample_kernel(  # grid: (blocks of coordinates,); centre: [d], peak: [blocks]
    x1, x2, centre, peak, todo, rows1, n, sb1, sn1, sd1, rows2, m, sb2, sn2, sd2, d,
    SAMPLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_block = tl.program_id(0)
    o_d = (i_block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    o_s = tl.arange(0, SAMPLE).to(tl.int64)
    m_s = o_s >= 0
    b_x1 = _finite(_load(x1, o_s * rows1 // SAMPLE, n, sb1, sn1, sd1, o_d, m_s, d))
    b_x2 = _finite(_load(x2, o_s * rows2 // SAMPLE, m, sb2, sn2, sd2, o_d, m_s, d))
    b_centre = tl.sum(b_x1 * (0.5 / SAMPLE), 0) + tl.sum(b_x2 * (0.5 / SAMPLE), 0)
    tl.store(centre + o_d, b_centre, mask=o_d < d)
    b_peak = tl.maximum(tl.abs(b_x1 - b_centre[None, :]), tl.abs(b_x2 - b_centre[None, :]))
    b_peak = tl.where((o_d < d)[None, :], b_peak, 0.0)
    tl.store(peak + i_block, tl.max(tl.max(_finite(b_peak), 1), 0))
    if i_block == 0:
        tl.store(todo, 0)


@triton.jit
def _unit(peak, blocks, BLOCKS: tl.constexpr):
    """Biased exponent of the unit, by which a sampled coordinate comes to lie below 2^(TOP + 1).

    Within 2^MOST of 1, so that float32 has room for norms. Points beyond do not fit float16, or are all near.
    """
    o = tl.arange(0, BLOCKS)
    largest = tl.max(tl.load(peak + o, mask=o < blocks, other=0.0), 0)
    exponent = largest.to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent - TOP, 127 - MOST), 127 + MOST)
    return tl.where(largest > 0, exponent, 127)


@triton.jit(do_not_specialize=["rows1", "n", "sb1", "sn1", "rows2", "m", "sb2", "sn2", "d", "blocks"])
def split_kernel(  # grid: (blocks of rows of x1, then of x2,)
    x1, x2, centre, peak, pieces1, pieces2, norm1, norm2, unit,
    rows1, n, sb1, sn1, sd1, rows2, m, sb2, sn2, sd2, d, depth, blocks,
    PIECES: tl.constexpr, BLOCKS: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_block = tl.program_id(0).to(tl.int64)
    exponent = _unit(peak, blocks, BLOCKS)
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    if i_block == 0:
        tl.store(unit, (exponent << 23).to(tl.float32, bitcast=True))
    first = tl.cdiv(rows1, BLOCK_ROWS)
    if i_block < first:
        _split(x1, centre, pieces1, norm1, i_block, rows1, n, sb1, sn1, sd1, d, depth, inverse,
               PIECES, BLOCK_ROWS, BLOCK)  # fmt: skip
    else:
        _split(x2, centre, pieces2, norm2, i_block - first, rows2, m, sb2, sn2, sd2, d, depth, inverse,
               PIECES, BLOCK_ROWS, BLOCK)  # fmt: skip


@triton.jit
def _split(
    x, centre, pieces, norm, i_block, rows, n, sb, sn, sd, d, depth, inverse,
    PIECES: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_row = i_block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    m_row = o_row < rows
    o_out = pieces + o_row[:, None] * (PIECES * depth)
    b_norm = tl.zeros((BLOCK_ROWS,), tl.float64)  # so that it is rounded once
    b_bad = tl.zeros((BLOCK_ROWS,), tl.int32)
    for start in range(0, depth, BLOCK):
        o_d = (start + tl.arange(0, BLOCK)).to(tl.int64)
        b_x = _load(x, o_row, n, sb, sn, sd, o_d, m_row, d)
        b_x = (b_x - tl.load(centre + o_d, mask=o_d < d, other=0.0)[None, :]) * inverse
        b_bad += tl.max((~(tl.abs(b_x) <= LARGEST)).to(tl.int32), 1)
        b_x = tl.where(tl.abs(b_x) <= LARGEST, b_x, 0.0)
        b_hi = b_x.to(tl.float16)
        tl.store(o_out + o_d[None, :], b_hi, mask=m_row[:, None])
        b_sum = b_hi.to(tl.float32)
        if PIECES == 2:
            b_lo = (b_x - b_sum).to(tl.float16)
            tl.store(o_out + (depth + o_d)[None, :], b_lo, mask=m_row[:, None])
            b_sum += b_lo.to(tl.float32)  # exact: both are multiples of x's last place
        b_sum = b_sum.to(tl.float64)
        b_norm += tl.sum(b_sum * b_sum, 1)
    b_norm = (b_norm / inverse / inverse).to(tl.float32)
    tl.store(norm + o_row, tl.where(b_bad > 0, float("nan"), b_norm), mask=m_row)


def threshold(truncated: int, additions: int = 1) -> float:
    """The share of |a|^2 + |b|^2 up to which a squared distance is not trusted.

    `truncated`: terms of hi*hi that the tensor core sums up; `additions`: how many such sums are added.
    In units of 2^-24 (|a|^2 + |b|^2) the square is off by at most: 2 for the norms, each rounded once; 3 for
    the two last additions; 4 for lo*lo, which is left out; 6 for the pieces' own rounding; 2 for each 16
    terms, by which the tensor core truncates a sum that grows as it goes, half of that together; and 1/2
    for each addition: 15 + truncated / 16 + additions / 2. A distance is off by half of the square's
    relative error and 1 for its root, and must stay under 32 eps = 64 units.
    """
    return (16 + truncated / 16 + additions / 2) / 128


def near_floor(depth: int) -> float:
    """The same in units squared: below it lo's spacing of 2^-24 counts, 2^-25 off in each coordinate."""
    return depth / 256


def pair_up(name: str, x1: torch.Tensor, x2: torch.Tensor, p: float, dtypes: tuple[torch.dtype, ...]):
    """Check the inputs of the variant `name` -> x1 [b or 1, n, d], x2 [b or 1, m, d], the output's shape.

    Views where strides allow it: points that all batches read are never expanded. Raises as
    `triton_mma.cdist` says.
    """
    forward_only(name, x1, x2, dtypes=dtypes)
    if p < 0:
        raise ValueError(f"p must not be negative, not {p}.")
    if p != 2:
        raise NotImplementedError(f"{name} is a form of the Euclidean distance only, not of p = {p}.")
    if x1.dim() < 2 or x2.dim() < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"cdist takes [.., n, d] and [.., m, d], not {list(x1.shape)} and {list(x2.shape)}.")
    if x1.dtype != x2.dtype:
        raise NotImplementedError("cdist takes two inputs of the same dtype.")
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return _points(x1, batch), _points(x2, batch), (*batch, x1.shape[-2], x2.shape[-2])


def _points(x: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    shared = math.prod(x.shape[:-2]) == 1
    x = x if shared else x.expand(*batch, *x.shape[-2:])
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def prepare(x1: torch.Tensor, x2: torch.Tensor, todo: torch.Tensor, pieces: int) -> Operands:
    """[b1, n, d], [b2, m, d] of any strides, neither empty -> `Operands`; sets todo[0] to 0. Two launches."""
    rows1, rows2, d = x1.shape[0] * x1.shape[1], x2.shape[0] * x2.shape[1], x1.shape[2]
    depth, blocks = triton.cdiv(d, DEPTH) * DEPTH, triton.cdiv(d, DEPTH)
    half = {"dtype": torch.float16, "device": x1.device}
    wide = {"dtype": torch.float32, "device": x1.device}
    pieces1 = torch.empty(rows1, pieces * depth, **half)
    pieces2 = torch.empty(rows2, pieces * depth, **half)
    small = torch.empty(rows1 + rows2 + 1 + d + blocks, **wide)
    norm1, norm2, unit, centre, peak = small.split([rows1, rows2, 1, d, blocks])
    points = (rows1, x1.shape[1], *x1.stride(), rows2, x2.shape[1], *x2.stride(), d)
    sample_kernel[(blocks,)](x1, x2, centre, peak, todo, *points, SAMPLE=SAMPLE, BLOCK=DEPTH)
    grid = (triton.cdiv(rows1, BLOCK_ROWS) + triton.cdiv(rows2, BLOCK_ROWS),)
    split_kernel[grid](
        x1, x2, centre, peak, pieces1, pieces2, norm1, norm2, unit, *points, depth, blocks,
        PIECES=pieces, BLOCKS=triton.next_power_of_2(blocks), BLOCK_ROWS=BLOCK_ROWS, BLOCK=DEPTH,
    )  # fmt: skip
    return Operands(pieces1, pieces2, norm1, norm2, unit, depth)
