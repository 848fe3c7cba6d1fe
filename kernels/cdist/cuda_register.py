"""Distances in CUDA C++ by tiles of outputs in registers, as a matrix product (`csrc/cdist/register.cu`)."""

from __future__ import annotations

import torch

import kernels.cdist.gradient  # noqa: F401  (registers the gradient)
from kernels.cdist.points import over_broadcast
from kernels.guards import UP_TO_FLOAT32, takes


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, tile: int = 128) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] on a CUDA device, in the inputs' dtype, for any p >= 0.

    float32, bfloat16 and float16, accumulated in float32; differentiable once. Batch dims broadcast without
    copies (`over_broadcast`); a non-contiguous input is copied first, as part of the call. `tile` is the side
    of a block's outputs, 128 or 64. Raises NotImplementedError for another dtype.
    """
    takes("cuda_register", x1, x2, dtypes=UP_TO_FLOAT32)
    if p < 0:
        raise ValueError(f"p must not be negative, not {p}.")
    if tile not in (64, 128):
        raise ValueError(f"tile is 64 or 128, not {tile}.")
    return over_broadcast(lambda a, b: torch.ops.kernels.cdist_register(a, b, float(p), tile == 128), x1, x2)
