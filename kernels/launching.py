"""How own Triton kernels become operators: compiled, or in Triton's interpreter."""

from __future__ import annotations

import torch
from triton.runtime.interpreter import InterpretedFunction


def operator(kernel):
    """The decorator that registers an op which launches `kernel`.

    Tracing looks into a compiled kernel; the interpreter's stand-in is opaque to it.
    """
    return torch.library.custom_op if _is_opaque(kernel) else torch.library.triton_op


def traceable(kernel):
    """`kernel` in a form whose launch torch.compile can trace."""
    return kernel if _is_opaque(kernel) else torch.library.wrap_triton(kernel)


def laid_out_as(t: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """t itself where its strides are like's, else a copy that has them."""
    return t if t.stride() == like.stride() else torch.empty_like(like).copy_(t)


def _is_opaque(kernel) -> bool:
    return isinstance(kernel, InterpretedFunction)
