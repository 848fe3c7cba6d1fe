"""The fastest softmax of this project for each input. Which design runs is decided in `csrc/softmax/tuned.h`.

| slices | forward | backward (not yet measured) |
|---|---|---|
| along the last dim, up to 64 KiB | registers of a warp or a block (`cuda_vector`) | the same |
| wider, to 1 MiB, compute capability 9.0 | as the next line | registers of a cluster (`cuda_cluster`) |
| wider, compute capability 9.0 | shared memory of the blocks of a team (`cuda_ring`) | the same |
| others | two reads (`cuda_online`) | the same |
| along another dim | the same on a copy | the same on copies |
| float64 | the plain kernel (`cuda_row`) | the same |
"""

from __future__ import annotations

import torch

from kernels.guards import FLOATING, takes
from kernels.softmax import operators
from kernels.softmax.rows import along_last


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CUDA tensor of any shape along `dim`; half types are computed in float32.

    Raises NotImplementedError for another dtype.
    """
    takes("tuned", x, dtypes=FLOATING)
    return along_last(operators.tuned, x, dim)
