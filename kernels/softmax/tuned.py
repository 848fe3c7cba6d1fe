"""The fastest softmax of this project for each input. Which design runs is decided in `csrc/softmax/tuned.h`.

| slices | forward | backward |
|---|---|---|
| along the last dim, float32 to 64 KiB | registers of a warp or a block (`cuda_vector`) | the same |
| half types to 32 KiB; float32 not aligned to 16 KiB | the same | the same, to 64 KiB |
| float32, 96 to 128 KiB, aligned, sm_90 | of a block alone (`cuda_cluster`) | of a cluster (`cuda_cluster`) |
| 16 bits to 128 KiB, float32 to 256 KiB, aligned, sm_90 | as the next line | the same |
| wider, to 1 MiB, sm_90 | shared memory of a cluster (`cuda_staged`) | as the next line |
| wider, sm_90 | shared memory of the blocks of a team (`cuda_ring`) | the same |
| others | two reads (`cuda_online`) | the same |
| along another dim | registers of a block or a cluster, else two reads (`cuda_strided`) | rows, on copies |
| along another dim, enough for a GPU | the same, packed (`cuda_strided_stream`) | rows, on copies |
| the same, little for a block, or few columns too long for a cluster | rows, on a copy | rows, on copies |
| float64 | the plain kernel (`cuda_row`) | the same |

Where autograd records a call along another dim the forward works on a copy too, which the backward needs.
"""

from __future__ import annotations

import math

import torch

from kernels.guards import FLOATING, takes
from kernels.softmax import operators
from kernels.softmax.rows import along_last, check_dim

LEAST = 512  # elements of an outer index: fewer leave most of a block without work
LONGEST = 16384  # that a cluster holds of 32 bytes of columns in half types, half as many as of float32
BLOCKS = 128  # fewer than that leave a GPU without work: then it is better to copy
CHUNK = 128  # bytes of columns that a block of the kernel that reads twice has


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CUDA tensor of any shape along `dim`; half types are computed in float32.

    Raises NotImplementedError for another dtype.
    """
    takes("tuned", x, dtypes=FLOATING)
    check_dim(x, dim)
    recorded = x.requires_grad and torch.is_grad_enabled()
    if not recorded and _down_columns(x, dim % max(x.dim(), 1)):
        return operators.strided_tuned(x, dim % x.dim())
    return along_last(operators.tuned, x, dim)


def _down_columns(x: torch.Tensor, dim: int) -> bool:
    """Whether to leave the columns where they are. Slices whose elements are neighbours are rows already."""
    if x.dim() < 2 or x.dtype == torch.float64 or x.stride(dim) == 1:
        return False
    outer, length, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    blocks = outer * math.ceil(inner * x.itemsize / CHUNK)
    return length * inner >= LEAST and (length <= LONGEST or blocks >= BLOCKS)
