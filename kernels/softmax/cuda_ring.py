"""Softmax in CUDA C++: blocks that stay share each row, brought to shared memory ahead of need."""

from __future__ import annotations

import torch

from kernels.guards import UP_TO_FLOAT32, takes
from kernels.softmax import operators
from kernels.softmax.rows import along_last, refuse_before_hopper


def softmax(x: torch.Tensor, dim: int = -1, team: int = 0) -> torch.Tensor:
    """Softmax of a float32, bfloat16 or float16 CUDA tensor of any shape along `dim`, computed in float32.

    `team` blocks share a row; 0 chooses by width. Rows may start anywhere; only slices whose elements are not
    neighbours are copied first, within the call. Raises NotImplementedError for another dtype or a GPU before
    compute capability 9.0, RuntimeError for a row that the team's shared memory cannot hold: on an H200 3.6
    million float32 with all blocks in one team, 3.2 million in the backward.
    """
    takes("cuda_ring", x, dtypes=UP_TO_FLOAT32)
    refuse_before_hopper("cuda_ring", x)
    return along_last(lambda rows: operators.ring(rows, team), x, dim)
