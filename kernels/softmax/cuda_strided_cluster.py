"""Softmax in CUDA C++ down the columns: a cluster of small blocks holds some in registers; read once."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax import operators
from kernels.softmax.rows import along_dim, refuse_before_hopper


def softmax(x: torch.Tensor, dim: int = -1, cluster: int = 0, columns: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    `cluster` blocks (1 to 16) share `columns` bytes (16, 32, 64, 128 or 256) of neighbouring columns; 0
    chooses. A block holds 64 KiB of them in float32, 32 KiB in half types. With neither given, what no
    cluster takes goes the way of `cuda_strided_stream`: rows that are not whole 16-byte vectors on their
    boundaries, and columns too long. Only an input whose dims before or behind `dim` cannot be seen as one is
    copied first, within the call. Raises NotImplementedError for another dtype, a GPU before compute
    capability 9.0, or where autograd would record the call; RuntimeError where the asked-for blocks cannot
    have such a tile, and for more blocks than a grid has (2^31 - 1).
    """
    forward_only("cuda_strided_cluster", x, dtypes=UP_TO_FLOAT32)
    refuse_before_hopper("cuda_strided_cluster", x)
    return along_dim(lambda t, d: operators.strided_cluster(t, d, cluster, columns), x, dim)
