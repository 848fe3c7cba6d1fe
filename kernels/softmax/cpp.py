"""Softmax in C++ on the CPU (`csrc/softmax/cpu.cpp`, loaded before this)."""

from __future__ import annotations

import torch

from kernels.guards import forward_only
from kernels.softmax.rows import over_rows


@torch.library.register_fake("kernels::softmax_cpp")
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CPU tensor of any shape along `dim`; half types are computed in float32.

    An input whose slices are not contiguous is copied first; the copy is part of the call.
    Raises NotImplementedError for another dtype, or where autograd would record the call.
    """
    forward_only("cpp", x)
    return over_rows(torch.ops.kernels.softmax_cpp, x, dim)
