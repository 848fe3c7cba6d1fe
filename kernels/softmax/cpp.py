"""Softmax in C++ on the CPU (`csrc/softmax/cpu.cpp`, loaded before this)."""

from __future__ import annotations

import torch

from kernels.guards import takes
from kernels.softmax.registration import softmax_by
from kernels.softmax.rows import over_rows

_rows = softmax_by("softmax_cpp")


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CPU tensor of any shape along `dim`; half types are computed in float32.

    An input whose slices are not contiguous is copied first; the copy is part of the call.
    Raises NotImplementedError for another dtype.
    """
    takes("cpp", x)
    return over_rows(_rows, x, dim)
