"""Softmax in CUDA C++: one thread block for each row (`csrc/softmax/row.cu`, loaded before this)."""

from __future__ import annotations

import torch

from kernels.guards import takes
from kernels.softmax.registration import softmax_by
from kernels.softmax.rows import over_rows

_rows = softmax_by("softmax_row")


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CUDA tensor of any shape along `dim`; half types are computed in float32.

    An input whose slices are not contiguous is copied first; the copy is part of the call.
    Raises NotImplementedError for another dtype.
    """
    takes("cuda_row", x)
    return over_rows(_rows, x, dim)
