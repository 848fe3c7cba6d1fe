"""Softmax in CUDA C++ down the columns: a cluster of small blocks holds some in shared memory; read once."""

from __future__ import annotations

import math

import torch

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax import operators
from kernels.softmax.rows import along_dim, refuse_before_hopper

VECTOR = 16  # bytes


def softmax(x: torch.Tensor, dim: int = -1, cluster: int = 0, columns: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    `cluster` blocks (1 to 16) share `columns` bytes (16, 32, 64 or 128) of neighbouring columns; 0 chooses.
    Only an input whose dims before or behind `dim` cannot be seen as one, or whose rows do not start on
    16-byte boundaries, is copied first, within the call. Raises NotImplementedError where what lies behind
    `dim` is not a multiple of 16 bytes, for another dtype, a GPU before compute capability 9.0, or where
    autograd would record the call; RuntimeError where the asked-for blocks, or those of this GPU, hold less
    than a tile, and for more blocks than a grid has (2^31 - 1).
    """
    forward_only("cuda_strided_staged", x, dtypes=UP_TO_FLOAT32)
    refuse_before_hopper("cuda_strided_staged", x)
    return along_dim(lambda t, d: operators.strided_staged(_of_vectors(t, d), d, cluster, columns), x, dim)


def _of_vectors(x: torch.Tensor, dim: int) -> torch.Tensor:
    inner = math.prod(x.shape[dim + 1 :])
    if inner * x.itemsize % VECTOR:
        raise NotImplementedError(
            f"cuda_strided_staged takes columns that are whole vectors of {VECTOR} bytes, not {inner} of "
            f"{str(x.dtype)[6:]}."
        )
    return x
