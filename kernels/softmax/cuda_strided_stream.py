"""Softmax in CUDA C++ down the columns: tiles as packed vectors, the next ones on their way; read once."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax import operators
from kernels.softmax.rows import along_dim


def softmax(
    x: torch.Tensor, dim: int = -1, chunk: int = 64, block: int = 512, ahead: bool = False
) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    A block of at most `block` threads (256 or 512), or from compute capability 9.0 on a cluster of up to 8,
    has `chunk` bytes (32, 64 or 128) of neighbouring columns, 256 bytes to a thread. With `ahead` blocks
    stay, and tiles that take 256 threads or more come into shared memory ahead of need. Up to 64 columns
    whose rows are not whole vectors are read word by word; where neither fits, memory is read twice. Only an
    input whose dims before or behind `dim` cannot be seen as one is copied first, within the call. Raises
    NotImplementedError for another dtype, or where autograd would record the call.
    """
    forward_only("cuda_strided_stream", x, dtypes=UP_TO_FLOAT32)
    return along_dim(lambda t, d: operators.strided_stream(t, d, chunk, block, ahead), x, dim)
