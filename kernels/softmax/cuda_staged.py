"""Softmax in CUDA C++: a cluster of blocks holds a row in shared memory, and several blocks share an SM."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax import operators
from kernels.softmax.rows import along_last, refuse_before_hopper, refuse_wider

WIDEST = 16 * 224 * 1024 - 256  # bytes: blocks of shared memory, less two lines for rows between two


def softmax(x: torch.Tensor, dim: int = -1, cluster: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    `cluster` blocks (1 to 16) share a row; 0 chooses. Rows may start anywhere; only slices whose elements are
    not neighbours are copied first, within the call. Raises NotImplementedError for slices of more than
    3669760 bytes, another dtype, a GPU before compute capability 9.0, or where autograd would record the
    call; RuntimeError where the asked-for blocks, or those of this GPU, hold less than a row, and for more
    blocks than a grid has (2^31 - 1).
    """
    forward_only("cuda_staged", x, dtypes=UP_TO_FLOAT32)
    refuse_before_hopper("cuda_staged", x)
    refuse_wider("cuda_staged", x, dim, WIDEST // x.itemsize)
    return along_last(lambda rows: operators.staged(rows, cluster), x, dim)
