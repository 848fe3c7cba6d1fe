"""Softmax as written on a blackboard: every line is one PyTorch operator and one trip to memory."""

from __future__ import annotations

import torch


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """exp(x - max) / sum(exp(x - max)) along `dim`; any shape and strides, result in x's dtype.

    Computed in float32 (float64 stays), rounded once at the end, as PyTorch does. A slice of
    -inf, or one that holds +inf or NaN, gives NaN in that slice alone.
    """
    if x.numel() == 0:
        return x.clone()  # there is no maximum of nothing
    wide = x if x.dtype == torch.float64 else x.float()
    largest = wide.detach().amax(dim, keepdim=True)  # any shift gives the same result, so no gradient
    powers = (wide - largest).exp()
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)
