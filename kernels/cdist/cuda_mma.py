"""Euclidean distances on Hopper's tensor cores in CUDA C++ (`csrc/cdist/mma.cu`, loaded before this).

The idea is that of `triton_mma`; the points stay in shared memory while tiles of the others pass by.
"""

from __future__ import annotations

import torch

from kernels.cdist.mma_operands import pair_up

DEEPEST = 128  # coordinates; the rest of shared memory holds tiles on their way


@torch.library.register_fake("kernels::cdist_mma")
def _(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    return x1.new_empty(max(x1.shape[0], x2.shape[0]), x1.shape[1], x2.shape[1])


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] in float32, p = 2, d to 128, on a Hopper GPU; any strides.

    Inputs that share their batch dims or have none are read where they are; other broadcasts copy the points
    first. Raises NotImplementedError for another p, d or dtype and for autograd, RuntimeError where the
    library was not built for sm_90a.
    """
    x1, x2, shape = pair_up("cuda_mma", x1, x2, p, (torch.float32,))
    if x1.shape[2] > DEEPEST:
        raise NotImplementedError(
            f"cuda_mma takes points of at most {DEEPEST} coordinates, not {x1.shape[2]}."
        )
    if x1.numel() == 0 or x2.numel() == 0:
        return x1.new_zeros(shape)
    return torch.ops.kernels.cdist_mma(x1, x2).reshape(shape)
