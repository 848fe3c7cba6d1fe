"""The launch that the Triton forms of GeLU share."""

from __future__ import annotations

import torch
import triton

from kernels.launching import traceable


def launch(kernel, tensors: tuple[torch.Tensor, ...], block: int, **constants) -> None:
    """One program for each `block` elements. tensors: of one shape and one dense layout, the output last."""
    n = tensors[-1].numel()
    if n == 0:
        return
    with torch.cuda.device_of(tensors[-1]):
        traceable(kernel)[(triton.cdiv(n, block),)](*tensors, n, BLOCK=block, **constants)
