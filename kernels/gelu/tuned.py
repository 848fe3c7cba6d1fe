"""GeLU as it is fastest on the GPU at hand: `cuda_vector`, cut by a table of measured facts."""

from __future__ import annotations

import torch

from kernels.gelu.cuda_vector import by_cut

# Compute capability -> (elements up to which it holds, (loads under way in a thread, threads of a block)).
# More than fit a few blocks for each multiprocessor want bytes in flight; fewer want many short threads.
CUTS = {
    (9, 0): ((1 << 20, (1, 128)), (1 << 62, (2, 128))),  # H200
}
OTHERS = ((1 << 20, (1, 128)), (1 << 62, (2, 128)))

_OF_DEVICE = [CUTS.get(torch.cuda.get_device_capability(i), OTHERS) for i in range(torch.cuda.device_count())]


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x: any shape and strides, floating, on a GPU; the result follows x's dense strides, as torch's does."""
    n = x.numel()
    cut = next(cut for most, cut in _OF_DEVICE[x.get_device()] if n <= most)
    return by_cut(x, approximate, *cut)
