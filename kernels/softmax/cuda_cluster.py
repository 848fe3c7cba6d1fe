"""Softmax in CUDA C++: a cluster of blocks holds a row in registers and exchanges through shared memory."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, takes
from kernels.softmax import operators
from kernels.softmax.rows import along_last, refuse_before_hopper, refuse_wider

WIDEST = 16 * 512 * 32 - 8  # blocks of threads of elements, less a vector for rows between two


def softmax(x: torch.Tensor, dim: int = -1, blocks: int = 0, threads: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    `blocks` (1 to 16) of `threads` (256, 512 or 1024) share a row; 0 chooses. Rows may start anywhere; only
    slices whose elements are not neighbours are copied first, within the call.
    Raises NotImplementedError for slices of more than 262136 elements, another dtype, or a GPU before
    compute capability 9.0; RuntimeError where the asked-for blocks hold less than a row, or in the backward,
    at 16 bytes times 4 a thread and tensor, than two.
    """
    takes("cuda_cluster", x, dtypes=UP_TO_FLOAT32)
    refuse_before_hopper("cuda_cluster", x)
    refuse_wider("cuda_cluster", x, dim, WIDEST)
    return along_last(lambda rows: operators.cluster(rows, blocks, threads), x, dim)
