"""Softmax in CUDA C++ with 16-byte loads: a warp or a block holds its row in registers; read once."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, takes
from kernels.softmax import operators
from kernels.softmax.rows import along_last, refuse_wider

WIDEST_BYTES = 65536


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    Rows may start anywhere; only slices whose elements are not neighbours are copied first, within the call.
    Raises NotImplementedError for slices of more than 65536 bytes, or another dtype.
    """
    takes("cuda_vector", x, dtypes=UP_TO_FLOAT32)
    refuse_wider("cuda_vector", x, dim, WIDEST_BYTES // x.itemsize)
    return along_last(operators.vector, x, dim)
