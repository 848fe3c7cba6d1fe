"""The fastest softmax of this project for each input. Which design runs is decided in `csrc/softmax/tuned.h`.

| slices | forward |
|---|---|
| along the last dim, up to 64 KiB | registers of a warp or a block (`cuda_vector`) |
| along the last dim, wider, compute capability 9.0 | shared memory of the blocks of a team (`cuda_ring`) |
| along the last dim, others | two reads (`cuda_online`) |
| along another dim | registers of a block or a cluster, else two reads (`cuda_strided`) |
| along another dim, little for a block, or few columns too long for a cluster | rows, on a copy |
| float64 | the plain kernel (`cuda_row`) |
"""

from __future__ import annotations

import math

import torch

from kernels.guards import FLOATING, forward_only
from kernels.softmax import forward
from kernels.softmax.rows import along_last, check_dim

LEAST = 512  # elements of an outer index: fewer leave most of a block without work
LONGEST = 16384  # that a cluster holds of 32 bytes of columns in half types, half as many as of float32
BLOCKS = 128  # fewer than that leave a GPU without work: then it is better to copy
CHUNK = 128  # bytes of columns that a block of the kernel that reads twice has


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CUDA tensor of any shape along `dim`; half types are computed in float32.

    Raises NotImplementedError for another dtype, or where autograd would record the call.
    """
    forward_only("tuned", x, dtypes=FLOATING)
    check_dim(x, dim)
    if _down_columns(x, dim % max(x.dim(), 1)):
        return forward.strided_tuned(x, dim % x.dim())
    return along_last(forward.tuned, x, dim)


def _down_columns(x: torch.Tensor, dim: int) -> bool:
    """Whether to leave the columns where they are. Slices whose elements are neighbours are rows already."""
    if x.dim() < 2 or x.dtype == torch.float64 or x.stride(dim) == 1:
        return False
    outer, length, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    blocks = outer * math.ceil(inner * x.itemsize / CHUNK)
    return length * inner >= LEAST and (length <= LONGEST or blocks >= BLOCKS)
