"""GeLU as it is fastest on the GPU at hand: `cuda_vector`, cut by a table of measured facts."""

from __future__ import annotations

import torch

from kernels.gelu.cuda_vector import by_cut

FEW = 1 << 20  # elements: up to here a call is little more than its launch, and wants many short threads
# Compute capability -> (loads under way in a thread, threads of a block), for few elements and for more.
CUTS = {
    (9, 0): ((1, 128), (2, 128)),  # measured on an H200: NOTES.md
}
ELSEWHERE = ((1, 128), (2, 128))

_CUT_OF_DEVICE = [
    CUTS.get(torch.cuda.get_device_capability(i), ELSEWHERE) for i in range(torch.cuda.device_count())
]


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x: any shape and strides, floating, on a GPU; the result follows x's dense strides, as torch's does."""
    few, more = _CUT_OF_DEVICE[x.get_device()]
    loads, threads = few if x.numel() <= FEW else more
    return by_cut(x, approximate, loads, threads)
