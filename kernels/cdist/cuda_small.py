"""Distances in CUDA C++ between points of few coordinates, which a thread holds (`csrc/cdist/small.cu`)."""

from __future__ import annotations

import torch

import kernels.cdist.gradient  # noqa: F401  (registers the gradient)
from kernels.cdist.points import over_broadcast
from kernels.guards import UP_TO_FLOAT32, takes

MOST = 16  # coordinates, kMostSmall in csrc/cdist/exact.h


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] on a CUDA device, in the inputs' dtype, for any p >= 0 and d <= 16.

    float32, bfloat16 and float16, accumulated in float32; differentiable once. Batch dims broadcast without
    copies (`over_broadcast`); a non-contiguous input is copied first, as part of the call. Raises
    NotImplementedError for another dtype or more coordinates.
    """
    takes("cuda_small", x1, x2, dtypes=UP_TO_FLOAT32)
    if p < 0:
        raise ValueError(f"p must not be negative, not {p}.")
    if x1.shape[-1] == x2.shape[-1] > MOST:
        raise NotImplementedError(f"cuda_small takes at most {MOST} coordinates, not {x1.shape[-1]}.")
    return over_broadcast(lambda a, b: torch.ops.kernels.cdist_small(a, b, float(p)), x1, x2)
