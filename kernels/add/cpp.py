"""Addition by `kernels::add_cpp`, whose library is loaded before this module."""

from __future__ import annotations

import torch

from kernels.add.operators import add_by

_add = add_by("add_cpp", "cpp")


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's."""
    return _add(a, b)
