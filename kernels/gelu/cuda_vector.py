"""GeLU by `kernels::gelu_cuda_vector`, whose library is loaded before this module."""

from __future__ import annotations

import torch

from kernels.gelu.registration import gelu_by

by_cut = gelu_by("gelu_cuda_vector", "cuda_vector")  # (x, approximate[, loads, threads])


def gelu(x: torch.Tensor, approximate: str = "none", loads: int = 0, threads: int = 128) -> torch.Tensor:
    """x: any shape and strides, floating; the result follows x's dense strides, as torch's does.

    loads: of 16 bytes that a thread has under way, 1, 2, 4 or 8 (backward: x and the upstream gradient
    together), 0 for 2, or 1 where elements are few; threads: of a block, whole warps to 512.
    """
    if loads == 0 and threads == 128:  # the op's own; each argument costs a small call 5 %
        return by_cut(x, approximate)
    return by_cut(x, approximate, loads, threads)
