"""Addition by `kernels::add_cuda_vector`, whose library is loaded before this module."""

from __future__ import annotations

from numbers import Number

import torch

from kernels.add.operators import add_by

by_cut = add_by("add_cuda_vector", "cuda_vector")  # (a, b[, loads, threads])


def add(
    a: torch.Tensor | Number, b: torch.Tensor | Number, loads: int = 2, threads: int = 128
) -> torch.Tensor:
    """a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's.

    loads: of 16 bytes of both operands that a thread has under way, 2, 4 or 8; threads: of a block, whole
    warps to 512. Neither matters where an operand is walked by other steps than 1 or 0, or converted.
    """
    if loads == 2 and threads == 128:  # the op's own; each argument costs a small call 5 %
        return by_cut(a, b)
    return by_cut(a, b, loads, threads)
