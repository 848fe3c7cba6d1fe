"""How the kernels, which know only contiguous rows, take any shape, strides and dim."""

from __future__ import annotations

from collections.abc import Callable

import torch


def over_rows(kernel: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, dim: int) -> torch.Tensor:
    """Apply `kernel`, which works along the last dim of a contiguous tensor, along `dim` of `x`.

    Where the elements of a slice are not neighbours in memory the input is copied first, and that
    copy is part of the call. For a dim other than the last the result is a view whose strides have
    `dim` innermost. A 0-dim tensor is one row of one element. Raises IndexError for a dim that is not there.
    """
    dims = max(x.dim(), 1)
    if not -dims <= dim < dims:
        raise IndexError(f"dim {dim} is out of range for {x.dim()} dimensions.")
    if x.dim() == 0:
        return kernel(x.reshape(1)).reshape(())
    if dim in (-1, x.dim() - 1):
        return kernel(x.contiguous())
    return kernel(x.movedim(dim, -1).contiguous()).movedim(-1, dim)
