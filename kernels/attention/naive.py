"""Attention as the formula reads, one PyTorch operation at a time."""

from __future__ import annotations

import math

import torch


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v. q, k, v: (batch, heads, rows, dim), floating; no mask, no dropout.

    Half types take their softmax in float32.
    """
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.to(v.dtype) @ v
