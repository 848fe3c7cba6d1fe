"""Addition by `kernels::add_cuda_vector`, whose library is loaded before this module."""

from __future__ import annotations

import torch

from kernels.add.operators import add_by

_add = add_by("add_cuda_vector", "cuda_vector")


def add(a: torch.Tensor, b: torch.Tensor, unroll: int = 1, threads: int = 256) -> torch.Tensor:
    """a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's.

    unroll: loads of 16 bytes of each operand that a thread has under way, 1, 2 or 4; threads: of a block,
    whole warps to 512. Neither matters where an operand is walked by other steps than 1 or 0, or converted.
    """
    return _add(a, b, unroll, threads)
