"""How the Triton forms of GeLU are registered and launched, compiled or in Triton's interpreter."""

from __future__ import annotations

import torch
import triton
from triton.runtime.interpreter import InterpretedFunction


def operator(kernel):
    """The decorator that registers an op which launches `kernel`.

    Tracing looks into a compiled kernel; the interpreter's stand-in is opaque to it.
    """
    return torch.library.custom_op if isinstance(kernel, InterpretedFunction) else torch.library.triton_op


def launch(kernel, tensors: tuple[torch.Tensor, ...], block: int, **constants) -> None:
    """One program for each `block` elements. tensors: of one shape and one dense layout, the output last."""
    n = tensors[-1].numel()
    if n == 0:
        return
    opaque = isinstance(kernel, InterpretedFunction)
    traceable = kernel if opaque else torch.library.wrap_triton(kernel)
    with torch.cuda.device_of(tensors[-1]):
        traceable[(triton.cdiv(n, block),)](*tensors, n, BLOCK=block, **constants)


def laid_out_as(t: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """t itself where its strides are like's, else a copy that has them."""
    return t if t.stride() == like.stride() else torch.empty_like(like).copy_(t)
