"""Distances as written on a blackboard: all differences by broadcasting, then a reduction."""

from __future__ import annotations

import math

import torch


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] with batch dims that broadcast, in the inputs' dtype.

    Computed in float32 (float64 stays) and rounded once. Any p >= 0 as torch.cdist has it, gradients
    included: 0 where the distance is 0 or, for p < 1, a coordinate is equal. PyTorch's own cdist has no
    kernel for bfloat16 and float16 except through a matrix product; this returns the inputs' dtype.
    """
    if p < 0:
        raise ValueError(f"p must not be negative, not {p}.")
    size = (_wide(x1).unsqueeze(-2) - _wide(x2).unsqueeze(-3)).abs()
    return _norm(size, float(p)).to(x1.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _norm(size: torch.Tensor, p: float) -> torch.Tensor:
    """p-norm over the last dim of absolute values; the slope is finite wherever a norm is 0."""
    if p == 0:
        return size.ceil().clamp(max=1).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == math.inf:
        return _largest(size)
    return _power(_power(size, p).sum(-1), 1 / p)


def _power(value: torch.Tensor, exponent: float) -> torch.Tensor:
    """value^exponent for value >= 0, with slope 0 at 0, where an exponent below 1 has an infinite one."""
    if exponent >= 1:
        return value.pow(exponent)
    zero = value == 0
    base = torch.where(zero, 1.0, value)
    root = base.sqrt() if exponent == 0.5 else base.pow(exponent)
    return torch.where(zero, 0.0, root)


def _largest(size: torch.Tensor) -> torch.Tensor:
    """Largest value of the last dim, NaN passed over, 0 of nothing; all that attain it get the gradient."""
    if size.shape[-1] == 0:
        return size.sum(-1)
    size = size.nan_to_num(nan=0.0, posinf=math.inf)
    largest = size.amax(-1)
    if not largest.requires_grad:
        return largest
    ties = (size == largest.unsqueeze(-1)).sum(-1)
    return _Scaled.apply(largest, ties)  # amax shares the gradient out among ties


class _Scaled(torch.autograd.Function):
    """The identity, whose gradient is multiplied by `factor`."""

    @staticmethod
    def forward(ctx, value, factor):
        ctx.save_for_backward(factor)
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        (factor,) = ctx.saved_tensors
        return grad * factor, None
