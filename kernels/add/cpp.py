"""Addition by `kernels::add_cpp`, whose library is loaded before this module."""

from __future__ import annotations

import torch

from kernels.add.broadcast import prepare

torch.library.register_fake("kernels::add_cpp", lambda a, b, out: None)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's. Forward only."""
    out, *views = prepare(a, b, "cpp")
    torch.ops.kernels.add_cpp(*views)
    return out
