"""Softmax in CUDA C++ with 16-byte loads, maximum and sum in one pass; any width, read twice."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, takes
from kernels.softmax import operators
from kernels.softmax.rows import along_last


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    Rows may start anywhere; only slices whose elements are not neighbours are copied first, within the call.
    Raises NotImplementedError for another dtype.
    """
    takes("cuda_online", x, dtypes=UP_TO_FLOAT32)
    return along_last(operators.online, x, dim)
