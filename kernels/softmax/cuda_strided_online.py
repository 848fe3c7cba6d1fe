"""Softmax in CUDA C++ down the columns, maximum and sum in one pass; any length, read twice."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax import operators
from kernels.softmax.rows import along_dim


def softmax(x: torch.Tensor, dim: int = -1, chunk: int = 128) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    A block has `chunk` bytes (32, 64 or 128) of neighbouring columns. Only an input whose dims before or
    behind `dim` cannot be seen as one is copied first, within the call. Raises NotImplementedError for
    another dtype, or where autograd would record the call.
    """
    forward_only("cuda_strided_online", x, dtypes=UP_TO_FLOAT32)
    return along_dim(lambda t, d: operators.strided_online(t, d, chunk), x, dim)
