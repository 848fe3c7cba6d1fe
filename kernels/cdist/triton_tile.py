"""Distances in Triton: one tile of the output for each program, differences accumulated over d."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.cdist.points import over_batches
from kernels.guards import UP_TO_FLOAT32, forward_only

PROGRAMS = (1 << 31) - 1  # CUDA's limit for the x dim of a grid


@triton.jit
def cdist_kernel(  # x1: [b, n, d], x2: [b, m, d], out: [b, n, m], all contiguous; grid: (tiles,)
    x1, x2, out, n, m, d, p, P: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr
):
    tiles_n, tiles_m = tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M)
    i_tile = tl.program_id(0)
    i_m = i_tile % tiles_m
    i_n = (i_tile // tiles_m) % tiles_n
    i_batch = (i_tile // (tiles_m * tiles_n)).to(tl.int64)
    o_n = (i_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    o_m = (i_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    m_n, m_m = o_n < n, o_m < m
    o_x1 = (i_batch * n + o_n) * d
    o_x2 = (i_batch * m + o_m) * d
    b_sum = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for k in range(d):
        b_x1 = tl.load(x1 + o_x1 + k, mask=m_n, other=0.0).to(tl.float32)
        b_x2 = tl.load(x2 + o_x2 + k, mask=m_m, other=0.0).to(tl.float32)
        b_sum = _accumulate(b_sum, b_x1[:, None] - b_x2[None, :], p, P)
    b_out = _root(b_sum, p, P)
    o_out = (i_batch * n + o_n)[:, None] * m + o_m[None, :]
    tl.store(out + o_out, b_out.to(out.dtype.element_ty), mask=m_n[:, None] & m_m[None, :])


@triton.jit
def _accumulate(b_sum, b_diff, p, P: tl.constexpr):
    b_size = tl.abs(b_diff)
    if P == "2":
        b_sum += b_diff * b_diff
    elif P == "1":
        b_sum += b_size
    elif P == "0":  # NaN stays NaN
        b_sum += tl.where(b_size > 0, 1.0, b_size)
    elif P == "inf":  # NaN is passed over, as in torch.cdist
        b_sum = tl.where(b_size > b_sum, b_size, b_sum)
    else:
        b_sum += _power(b_size, p)
    return b_sum


@triton.jit
def _root(b_sum, p, P: tl.constexpr):
    if P == "2":
        b_sum = tl.sqrt(b_sum)
    elif P == "any":
        b_sum = _power(b_sum, 1.0 / p)
    return b_sum


@triton.jit
def _power(b_base, exponent):  # base >= 0, exponent > 0: log2 of 0 is -inf, and 2^-inf is 0
    return tl.exp2(exponent * tl.log2(b_base))


def cdist(
    x1: torch.Tensor,
    x2: torch.Tensor,
    p: float = 2.0,
    block_n: int = 32,
    block_m: int = 128,
    num_warps: int = 4,
) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] in the inputs' dtype (float32, bfloat16, float16), any p >= 0.

    Accumulates in float32. Batch dims broadcast; expanded or non-contiguous inputs are copied first, as
    part of the call. Raises NotImplementedError for another dtype, for autograd, and for more than
    2^31 - 1 tiles.
    """
    forward_only("triton_tile", x1, x2, dtypes=UP_TO_FLOAT32)
    if p < 0:
        raise ValueError(f"p must not be negative, not {p}.")
    options = {"BLOCK_N": block_n, "BLOCK_M": block_m, "num_warps": num_warps}
    return over_batches(lambda a, b: _launch(a, b, float(p), options), x1, x2)


def _launch(x1: torch.Tensor, x2: torch.Tensor, p: float, options: dict[str, int]) -> torch.Tensor:
    (batch, n, d), m = x1.shape, x2.shape[1]
    out = x1.new_empty(batch, n, m)
    if out.numel() == 0:
        return out
    tiles = batch * triton.cdiv(n, options["BLOCK_N"]) * triton.cdiv(m, options["BLOCK_M"])
    if tiles > PROGRAMS:
        raise NotImplementedError(f"triton_tile launches at most {PROGRAMS} tiles, not {tiles}.")
    kind = f"{p:g}" if p in (0.0, 1.0, 2.0, float("inf")) else "any"
    with torch.cuda.device_of(x1):
        cdist_kernel[(tiles,)](x1, x2, out, n, m, d, p, P=kind, **options)
    return out
