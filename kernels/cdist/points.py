"""How the kernels, which know only one batch dim and contiguous points, take any batch and strides."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch


def over_batches(
    kernel: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x1: torch.Tensor, x2: torch.Tensor
) -> torch.Tensor:
    """Apply `kernel`: [b, n, d], [b, m, d] -> [b, n, m], both contiguous, to batch dims that broadcast.

    Inputs that are expanded or not contiguous are copied first; the copy is part of the call.
    Raises ValueError for inputs that are not points of one dimension and one dtype.
    """
    if x1.dim() < 2 or x2.dim() < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"cdist takes [.., n, d] and [.., m, d], not {list(x1.shape)} and {list(x2.shape)}.")
    if x1.dtype != x2.dtype:
        raise NotImplementedError("cdist takes two inputs of the same dtype.")
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    out = kernel(_flat(x1, batch), _flat(x2, batch))
    return out.reshape(*batch, x1.shape[-2], x2.shape[-2])


def _flat(x: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    n, d = x.shape[-2:]
    return x.expand(*batch, n, d).reshape(math.prod(batch), n, d).contiguous()
