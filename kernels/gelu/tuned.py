"""GeLU as it is fastest on the GPU at hand: `cuda_vector`, cut by a table of measured facts."""

from __future__ import annotations

import torch

from kernels.gelu.cuda_vector import by_cut

FEW = 1 << 20  # elements: up to here a call is little more than its launch, and each argument costs it 5 %
# Compute capability -> how `cuda_vector` cuts the work, for few elements and for more: (loads under way in a
# thread, threads of a block), or () to leave it to the op.
CUTS = {
    (9, 0): ((), (2, 128)),  # measured on an H200: NOTES.md
}
ELSEWHERE = ((), (2, 128))

_CUTS_OF_DEVICE = [
    CUTS.get(torch.cuda.get_device_capability(i), ELSEWHERE) for i in range(torch.cuda.device_count())
]


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x: any shape and strides, floating, on a GPU; the result follows x's dense strides, as torch's does."""
    few, more = _CUTS_OF_DEVICE[x.get_device()]
    return by_cut(x, approximate, *(few if x.numel() <= FEW else more))
