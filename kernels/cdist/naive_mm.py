"""Euclidean distances through a matrix product: |a|^2 + |b|^2 - 2 a.b."""

from __future__ import annotations

import torch


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] with batch dims that broadcast, in the inputs' dtype.

    Computed in float32 (float64 stays). The three terms cancel, so the error is relative to
    |a|^2 + |b|^2 and not to the distance: near points lose their digits, and a point is not at distance 0
    from itself. The gradient is 0 where the result is 0. Raises NotImplementedError unless p is 2.
    """
    if p != 2:
        raise NotImplementedError(f"naive_mm is a form of the Euclidean distance only, not of p = {p}.")
    wide1, wide2 = _wide(x1), _wide(x2)
    norm1 = wide1.square().sum(-1).unsqueeze(-1)
    norm2 = wide2.square().sum(-1).unsqueeze(-2)
    square = norm1 + norm2 - 2 * (wide1 @ wide2.mT)
    near = square <= 0  # rounding may take it below
    root = torch.where(near, 1.0, square).sqrt()
    return torch.where(near, 0.0, root).to(x1.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()
