"""Addition as it is fastest on the GPU at hand, by a table of measured facts."""

from __future__ import annotations

from numbers import Number

import torch

from kernels.add import triton_unroll
from kernels.add.cuda_vector import by_cut

# As `cuda_vector` cuts by itself (2 loads under way in each of 128 threads) it was the fastest, or within
# half a percent of that, at every size of one dtype: NOTES.md. It has no packs of two dtypes; there
# `triton_unroll` is twice as fast, once a call is more than its launch.
MIXED = 1 << 21  # elements of the larger operand


def add(a: torch.Tensor | Number, b: torch.Tensor | Number) -> torch.Tensor:
    """a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's."""
    if _are_two_dtypes(a, b) and max(a.numel(), b.numel()) > MIXED:
        return triton_unroll.add(a, b)
    return by_cut(a, b)


def _are_two_dtypes(a: torch.Tensor | Number, b: torch.Tensor | Number) -> bool:
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype is not b.dtype
