"""Softmax in CUDA C++ down the columns: `dim` times some neighbouring columns in registers; read once."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax import operators
from kernels.softmax.rows import along_dim


def softmax(x: torch.Tensor, dim: int = -1, chunk: int = 64, block: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    A block, or from compute capability 9.0 on a cluster of up to 16, has `chunk` bytes (32, 64 or 128) of
    neighbouring columns; where the registers of a cluster do not hold them, memory is read twice. `block`
    threads (64, 128 or 256 with 64 elements each, 512 with 32) make a block; 0 chooses. Only an input whose
    dims before or behind `dim` cannot be seen as one is copied first, within the call. Raises
    NotImplementedError for another dtype, or where autograd would record the call.
    """
    forward_only("cuda_strided", x, dtypes=UP_TO_FLOAT32)
    return along_dim(lambda t, d: operators.strided(t, d, chunk, block), x, dim)
