"""How the kernels, which know one or two batch dims and contiguous points, take any batch and strides."""

from __future__ import annotations

import itertools
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
    check_points(x1, x2)
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    out = kernel(_flat(x1, batch), _flat(x2, batch))
    return out.reshape(*batch, x1.shape[-2], x2.shape[-2])


def over_broadcast(
    kernel: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x1: torch.Tensor, x2: torch.Tensor
) -> torch.Tensor:
    """As `over_batches`, for a `kernel` that broadcasts: [o, i, n, d], [o, i, m, d] -> [o, i, n, m].

    Each batch dim of either input may be 1 and stand for any size. Nothing is copied for batches that fit two
    such dims, and all do that have one input broadcast in some neighbouring dims and the other in the rest.
    """
    check_points(x1, x2)
    n, m, d = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    if x1.dim() == x2.dim() == 2:
        return kernel(x1.contiguous().view(1, 1, n, d), x2.contiguous().view(1, 1, m, d)).view(n, m)
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    dims1, dims2 = _two_dims(x1.shape[:-2], x2.shape[:-2])
    if dims1 is None:
        return over_batches(lambda a, b: kernel(a[None], b[None])[0], x1, x2)
    out = kernel(x1.contiguous().view(*dims1, n, d), x2.contiguous().view(*dims2, m, d))
    return out.view(*batch, n, m)


def _two_dims(
    batch1: torch.Size, batch2: torch.Size
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The two batches as two dims each, neighbours that broadcast alike taken together; None if more are needed."""
    rank = max(len(batch1), len(batch2))
    wide1, wide2 = ((1,) * (rank - len(batch)) + tuple(batch) for batch in (batch1, batch2))
    pairs = [pair for pair in zip(wide1, wide2) if pair != (1, 1)]
    groups = [list(group) for _, group in itertools.groupby(pairs, lambda pair: (pair[0] == 1, pair[1] == 1))]
    if len(groups) > 2:
        return None, None
    groups = [[(1, 1)]] * (2 - len(groups)) + groups
    dims1, dims2 = (tuple(math.prod(pair[side] for pair in group) for group in groups) for side in (0, 1))
    return dims1, dims2


def check_points(x1: torch.Tensor, x2: torch.Tensor) -> None:
    """Raise ValueError unless both are points of one dimension, NotImplementedError unless of one dtype."""
    if x1.dim() < 2 or x2.dim() < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"cdist takes [.., n, d] and [.., m, d], not {list(x1.shape)} and {list(x2.shape)}.")
    if x1.dtype != x2.dtype:
        raise NotImplementedError("cdist takes two inputs of the same dtype.")


def _flat(x: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    n, d = x.shape[-2:]
    return x.expand(*batch, n, d).reshape(math.prod(batch), n, d).contiguous()
