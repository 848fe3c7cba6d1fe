"""Softmax in CUDA C++: one thread block for each row (`csrc/softmax/row.cu`, loaded before this)."""

from __future__ import annotations

import torch

from kernels.guards import forward_only
from kernels.softmax.rows import over_rows


@torch.library.register_fake("kernels::softmax_row")
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CUDA tensor of any shape along `dim`; half types are computed in float32.

    An input whose slices are not contiguous is copied first; the copy is part of the call.
    Raises NotImplementedError for another dtype, or where autograd would record the call.
    """
    forward_only("cuda_row", x)
    return over_rows(torch.ops.kernels.softmax_row, x, dim)
