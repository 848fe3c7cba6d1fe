"""Softmax in CUDA C++: clusters of blocks hold a row in registers while the next ones are on their way."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, forward_only
from kernels.softmax import operators
from kernels.softmax.rows import along_last, refuse_before_hopper, refuse_wider

WIDEST = 16 * 512 * 32 - 8  # blocks of threads of elements, less a vector for rows between two


def softmax(
    x: torch.Tensor, dim: int = -1, cluster: int = 0, threads: int = 0, ahead: int = 0
) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    `cluster` blocks (1 to 16) of `threads` (512 or 1024; rows that are not aligned have their own number)
    share a row, and each has room for its part of `ahead` (1 to 4) rows to come; 0 chooses. Rows may start
    anywhere; only slices whose elements are not neighbours are copied first, within the call. Raises
    NotImplementedError for slices of more than 262136 elements, another dtype, a GPU before compute
    capability 9.0, or where autograd would record the call; RuntimeError where the asked-for blocks hold less
    than a row.
    """
    forward_only("cuda_pipeline", x, dtypes=UP_TO_FLOAT32)
    refuse_before_hopper("cuda_pipeline", x)
    refuse_wider("cuda_pipeline", x, dim, WIDEST)
    return along_last(lambda rows: operators.pipeline(rows, cluster, threads, ahead), x, dim)
