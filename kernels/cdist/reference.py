"""The right answer: distances from float64 differences, never through a matrix product.

A loop over coordinates keeps memory at a few times `PIECE` elements beyond the output. The gradient
is written out, because it has conventions at points and coordinates that coincide.
"""

from __future__ import annotations

import math

import torch

PIECE = 1 << 25  # outputs worked on at once: 256 MiB of float64 for each temporary


def cdist(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: str | None = None
) -> torch.Tensor:
    """(sum over k of |x1[.., i, k] - x2[.., j, k]|^p)^(1/p): [.., n, d], [.., m, d] -> [.., n, m].

    p = 0 counts the coordinates that differ; p = inf takes the largest difference and, as PyTorch
    does, passes over NaN. Batch dims broadcast. Computed and returned in the inputs' dtype, which for a
    reference is float64. `compute_mode` belongs to torch.cdist and changes nothing here. Gradients follow
    torch.cdist: 0 where the distance is 0, where a coordinate is equal, and for p = 0; for p = inf each
    coordinate that attains the largest difference gets the whole gradient.
    """
    if p < 0:
        raise ValueError(f"p must not be negative, not {p}.")
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    n, m, d = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    flat1 = x1.expand(*batch, n, d).reshape(math.prod(batch), n, d)
    flat2 = x2.expand(*batch, m, d).reshape(math.prod(batch), m, d)
    return _Distance.apply(flat1, flat2, float(p)).reshape(*batch, n, m)


class _Distance(torch.autograd.Function):
    """[b, n, d], [b, m, d] -> [b, n, m]."""

    @staticmethod
    def forward(ctx, x1, x2, p):
        out = x1.new_zeros(x1.shape[0], x1.shape[1], x2.shape[1])
        columns1, columns2 = _columns(x1), _columns(x2)
        for some, rows in _pieces(out):
            piece = out[some, rows]
            for k in range(x1.shape[2]):
                _add_term(piece, columns1[some, k, rows, None] - columns2[some, k, None], p)
            _take_root(piece, p)
        ctx.save_for_backward(x1, x2, out)
        ctx.p = p
        return out

    @staticmethod
    def backward(ctx, grad):
        x1, x2, out = ctx.saved_tensors
        columns1, columns2 = _columns(x1), _columns(x2)
        grad1, grad2 = torch.zeros_like(columns1), torch.zeros_like(columns2)
        for some, rows in _pieces(out):
            distance, incoming = out[some, rows], grad[some, rows]
            for k in range(x1.shape[2]):
                difference = columns1[some, k, rows, None] - columns2[some, k, None]
                term = _slope(difference, distance, ctx.p).mul_(incoming)
                grad1[some, k, rows] += term.sum(2)
                grad2[some, k] -= term.sum(1)
        return grad1.mT.contiguous(), grad2.mT.contiguous(), None


def _columns(x: torch.Tensor) -> torch.Tensor:
    """[b, n, d] -> [b, d, n] contiguous, so that a coordinate of all points lies together."""
    return x.mT.contiguous()


def _pieces(out: torch.Tensor):
    """Yield (slice of the batch, slice of the rows), at most about `PIECE` outputs each; nothing if empty."""
    batch, n, m = out.shape
    if out.numel() == 0:
        return
    many = max(1, PIECE // (n * m))
    step = max(1, PIECE // m)
    for first in range(0, batch, many):
        for start in range(0, n, step):
            yield slice(first, first + many), slice(start, start + step)


def _add_term(total: torch.Tensor, difference: torch.Tensor, p: float) -> None:
    if p == 2:
        total.addcmul_(difference, difference)
    elif p == 0:
        total.add_(difference.abs_().ceil_().clamp_(max=1))  # a NaN stays one, which `!= 0` would not
    elif p == math.inf:
        torch.fmax(total, difference.abs_(), out=total)
    else:
        total.add_(difference.abs_() if p == 1 else difference.abs_().pow_(p))


def _take_root(total: torch.Tensor, p: float) -> None:
    if p == 2:
        total.sqrt_()
    elif p not in (0, 1, math.inf):
        total.pow_(1 / p)


def _slope(difference: torch.Tensor, distance: torch.Tensor, p: float) -> torch.Tensor:
    """d distance / d difference, elementwise: sign(difference) * (|difference| / distance)^(p - 1)."""
    if p == 0:
        return torch.zeros_like(difference)
    sign, size = difference.sign(), difference.abs()
    if p == 1:
        return sign
    if p == math.inf:
        return sign * (size == distance)
    ratio = (size / distance).pow_(p - 1)
    return (sign * ratio).masked_fill_((distance == 0) | (size == 0), 0.0)
