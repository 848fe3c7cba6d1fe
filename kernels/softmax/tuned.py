"""The fastest softmax of this project for each input. Which design runs is decided in `csrc/softmax/tuned.h`.

| slices | forward |
|---|---|
| along the last dim, up to 64 KiB | registers of a warp or a block (`cuda_vector`) |
| along the last dim, wider, compute capability 9.0 | shared memory of the blocks of a team (`cuda_ring`) |
| along the last dim, others | two reads (`cuda_online`) |
| along another dim | the same on a copy |
| float64 | the plain kernel (`cuda_row`) |
"""

from __future__ import annotations

import torch

from kernels.guards import FLOATING, forward_only
from kernels.softmax import forward
from kernels.softmax.rows import along_last


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax of a floating CUDA tensor of any shape along `dim`; half types are computed in float32.

    Raises NotImplementedError for another dtype, or where autograd would record the call.
    """
    forward_only("tuned", x, dtypes=FLOATING)
    return along_last(forward.tuned, x, dim)
