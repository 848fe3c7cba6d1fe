"""Euclidean distances on Hopper's tensor cores in CUDA C++ (`csrc/cdist/mma.cu`, loaded before this).

The idea is that of `triton_mma`; the points stay in shared memory while tiles of the others pass by.
"""

from __future__ import annotations

import torch

from kernels.cdist.mma_near import recompute
from kernels.cdist.mma_operands import DEPTH, pair_up, threshold

DEEPEST = 128  # coordinates; the rest of shared memory holds two or three tiles on their way
STRIP, TILE = 16, 128  # what is listed when a pair in it is near


@torch.library.register_fake("kernels::cdist_mma")
def _(x1, x2, out, todo, tau):
    return None


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] in float32, p = 2, d to 128, on a Hopper GPU; any strides.

    Inputs that share their batch dims or have none are read where they are; other broadcasts copy the points
    first. Raises NotImplementedError for another p, d or dtype and for autograd, RuntimeError where the
    library was not built for sm_90a.
    """
    x1, x2, out, shape = pair_up("cuda_mma", x1, x2, p, (torch.float32,))
    (batch, n, m), d = out.shape, x1.shape[2]
    if d > DEEPEST:
        raise NotImplementedError(f"cuda_mma takes points of at most {DEEPEST} coordinates, not {d}.")
    if out.numel() and d:
        strips = batch * -(-n // STRIP) * -(-m // TILE)
        todo = torch.empty(1 + strips, dtype=torch.int32, device=x1.device)
        depth = -(-d // DEPTH) * DEPTH
        # beyond one block of coordinates small terms meet a sum that is large already
        torch.ops.kernels.cdist_mma(x1, x2, out, todo, threshold(depth if depth == DEPTH else 2 * depth))
        with torch.cuda.device_of(x1):
            recompute(x1, x2, out, todo, STRIP, TILE)
    return out.reshape(shape)
