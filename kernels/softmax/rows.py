"""How the kernels, which know only rows, take any shape, strides and dim; and what they refuse."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch


def over_rows(kernel: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, dim: int) -> torch.Tensor:
    """Apply `kernel`, which works along the last dim of a contiguous tensor, along `dim` of `x`.

    Where the elements of a slice are not neighbours in memory the input is copied first, and that
    copy is part of the call. For a dim other than the last the result is a view whose strides have
    `dim` innermost. A 0-dim tensor is one row of one element. Raises IndexError for a dim that is not there.
    """
    if x.dim() == 0:
        check_dim(x, dim)
        return kernel(x.reshape(1)).reshape(())
    return along_last(lambda rows: kernel(rows.contiguous()), x, dim)


def along_last(kernel: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, dim: int) -> torch.Tensor:
    """As `over_rows`, for a kernel that takes any tensor, a 0-dim one too, and copies where it must."""
    if dim in (-1, x.dim() - 1):
        return kernel(x)
    check_dim(x, dim)
    return kernel(x) if x.dim() == 0 else kernel(x.movedim(dim, -1)).movedim(-1, dim)


def check_dim(x: torch.Tensor, dim: int) -> None:
    """Raise IndexError for a dim that is not there; a 0-dim tensor has one."""
    dims = max(x.dim(), 1)
    if not -dims <= dim < dims:
        raise IndexError(f"dim {dim} is out of range for {x.dim()} dimensions.")


def along_dim(kernel: Callable[[torch.Tensor, int], torch.Tensor], x: torch.Tensor, dim: int) -> torch.Tensor:
    """As `over_rows`, for a kernel that takes a tensor of one dim or more, and which of them, from 0 on."""
    check_dim(x, dim)
    if x.dim() == 0:
        return kernel(x.reshape(1), 0).reshape(())
    return kernel(x, dim % x.dim())


def refuse_wider(name: str, x: torch.Tensor, dim: int, widest: int) -> None:
    """Raise NotImplementedError for slices of more than `widest` elements."""
    width = x.shape[dim] if x.dim() else 1
    if width > widest:
        raise NotImplementedError(f"{name} holds at most {widest} elements of a row, not {width}.")


def refuse_more_rows(name: str, rows: int) -> None:
    """Raise NotImplementedError for more programs than the x dim of a grid has."""
    if rows >= 1 << 31:
        raise NotImplementedError(f"{name} launches at most {(1 << 31) - 1} rows, not {rows}.")


def refuse_before_hopper(name: str, x: torch.Tensor) -> None:
    """Raise NotImplementedError on a GPU older than compute capability 9.0."""
    if x.is_cuda and _capability(x.get_device()) < (9, 0):
        raise NotImplementedError(f"{name} needs a GPU of compute capability 9.0 or later.")


@functools.cache
def _capability(device: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
