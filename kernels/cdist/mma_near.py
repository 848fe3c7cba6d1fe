"""Distances of the pairs that a matrix product could not tell apart, from differences of the given points.

The product kernel writes NaN for such a pair and puts its tile on a list; this takes the list, looks for NaN
in pieces of its tiles, and computes these pieces again. With nothing on the list it costs its launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

PIECE = 32, 64  # at most: what is computed again around a near pair
PROGRAMS = 1024  # they share out the list, whose length only the device knows


@triton.jit(do_not_specialize=["n", "sb1", "sn1", "m", "sb2", "sn2", "d"])
def near_kernel(  # grid: any; out: [b, n, m]; todo: how many tiles, then their numbers
    x1, x2, out, todo, n, sb1, sn1, sd1, m, sb2, sn2, sd2, d,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, SUB_N: tl.constexpr, SUB_M: tl.constexpr,
):  # fmt: skip
    tiles_n, tiles_m = tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M)
    across: tl.constexpr = BLOCK_M // SUB_M
    parts: tl.constexpr = BLOCK_N // SUB_N * across
    total = tl.load(todo) * parts
    for i in range(tl.program_id(0), total, tl.num_programs(0)):
        i_tile = tl.load(todo + 1 + i // parts)
        i_part = i % parts
        i_m = i_tile % tiles_m
        i_n = (i_tile // tiles_m) % tiles_n
        i_batch = (i_tile // (tiles_m * tiles_n)).to(tl.int64)
        o_n = (i_n * BLOCK_N + i_part // across * SUB_N + tl.arange(0, SUB_N)).to(tl.int64)
        o_m = (i_m * BLOCK_M + i_part % across * SUB_M + tl.arange(0, SUB_M)).to(tl.int64)
        o_out = out + (i_batch * n + o_n)[:, None] * m + o_m[None, :]
        mask = (o_n < n)[:, None] & (o_m < m)[None, :]
        b_old = tl.load(o_out, mask=mask, other=0.0).to(tl.float32)
        if tl.max(tl.max((b_old != b_old).to(tl.int32), 1), 0) > 0:
            o_x1 = x1 + i_batch * sb1 + o_n * sn1
            o_x2 = x2 + i_batch * sb2 + o_m * sn2
            b_out = _distances(o_x1, sd1, o_n < n, o_x2, sd2, o_m < m, d)
            tl.store(o_out, b_out.to(out.dtype.element_ty), mask=mask)


def recompute(x1, x2, out, todo: torch.Tensor, block_n: int, block_m: int) -> None:
    """Near pairs of out [b, n, m], whose tiles of block_n x block_m are listed in todo[1:], todo[0] of them.

    x1 [b or 1, n, d] and x2 [b or 1, m, d] have any strides; points of 1 batch serve all.
    """
    sub_n, sub_m = min(PIECE[0], block_n), min(PIECE[1], block_m)
    stride1, stride2 = (x.stride(0) if x.shape[0] > 1 else 0 for x in (x1, x2))
    near_kernel[(PROGRAMS,)](
        x1, x2, out, todo, x1.shape[1], stride1, *x1.stride()[1:], x2.shape[1], stride2, *x2.stride()[1:],
        x1.shape[2], BLOCK_N=block_n, BLOCK_M=block_m, SUB_N=sub_n, SUB_M=sub_m,
    )  # fmt: skip


@triton.jit
def _distances(o_x1, sd1, m_n, o_x2, sd2, m_m, d):
    b_sum = tl.zeros((o_x1.shape[0], o_x2.shape[0]), tl.float32)
    for k in tl.range(0, d, loop_unroll_factor=8):
        b_x1 = tl.load(o_x1 + k * sd1, mask=m_n, other=0.0).to(tl.float32)
        b_x2 = tl.load(o_x2 + k * sd2, mask=m_m, other=0.0).to(tl.float32)
        b_diff = b_x1[:, None] - b_x2[None, :]
        b_sum += b_diff * b_diff
    b_out = tl.sqrt(b_sum)
    extreme = (b_sum < 1e-24) | (b_sum > 1e36)  # squares may have left float32's range, on either side
    if tl.max(tl.max(extreme.to(tl.int32), 1), 0) > 0:
        b_out = _scaled_distances(o_x1, sd1, m_n, o_x2, sd2, m_m, d)
    return b_out


@triton.jit
def _scaled_distances(o_x1, sd1, m_n, o_x2, sd2, m_m, d):
    """The same with each pair's differences divided by the power of two below the largest of them."""
    b_peak = tl.zeros((o_x1.shape[0], o_x2.shape[0]), tl.float32)
    for k in tl.range(0, d, loop_unroll_factor=8):
        b_x1 = tl.load(o_x1 + k * sd1, mask=m_n, other=0.0).to(tl.float32)
        b_x2 = tl.load(o_x2 + k * sd2, mask=m_m, other=0.0).to(tl.float32)
        b_peak = tl.maximum(b_peak, tl.abs(b_x1[:, None] - b_x2[None, :]))
    exponent = b_peak.to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent, 1), 253)  # neither it nor its inverse leaves the range
    b_inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    b_sum = tl.zeros((o_x1.shape[0], o_x2.shape[0]), tl.float32)
    for k in tl.range(0, d, loop_unroll_factor=8):
        b_x1 = tl.load(o_x1 + k * sd1, mask=m_n, other=0.0).to(tl.float32)
        b_x2 = tl.load(o_x2 + k * sd2, mask=m_m, other=0.0).to(tl.float32)
        b_diff = (b_x1[:, None] - b_x2[None, :]) * b_inverse
        b_sum += b_diff * b_diff
    return tl.sqrt(b_sum) * (exponent << 23).to(tl.float32, bitcast=True)
