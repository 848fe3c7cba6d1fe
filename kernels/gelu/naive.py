"""GeLU as the formula reads, one PyTorch operation at a time."""

from __future__ import annotations

import math

import torch


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x * Phi(x), or its tanh approximation (Hendrycks and Gimpel, arXiv:1606.08415).

    x: any shape, floating; the result has x's shape and dtype. Half types are computed in
    float32: in float16 the square of 256 is infinite, and the gradient would be NaN.
    """
    u = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (u + 0.044715 * (u * u * u))
        y = 0.5 * u * (1 + torch.tanh(inner))
    else:
        y = 0.5 * u * (1 + torch.erf(u * math.sqrt(0.5)))
    return y.to(x.dtype)
