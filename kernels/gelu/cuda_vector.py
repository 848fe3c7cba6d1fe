"""GeLU by `kernels::gelu_cuda_vector`, whose library is loaded before this module."""

from __future__ import annotations

import torch

from kernels.gelu.registration import is_tanh, register

register("gelu_cuda_vector")
# Autograd's Python costs more than the launch: a call without a gradient goes by an op that has none.
torch.library.register_fake("kernels::gelu_cuda_vector_forward", lambda x, *how: torch.empty_like(x))
_differentiable = torch.ops.kernels.gelu_cuda_vector.default
_forward = torch.ops.kernels.gelu_cuda_vector_forward.default


def gelu(
    x: torch.Tensor, approximate: str = "none", unroll: int = 2, threads: int = 256, stream: bool = False
) -> torch.Tensor:
    """x: any shape and strides, floating; the result follows x's dense strides, as torch's does.

    unroll: loads of 16 bytes that a thread has under way, 1, 2 or 4; threads: of a block, whole warps to 512.
    """
    op = _differentiable if x.requires_grad and torch.is_grad_enabled() else _forward
    return op(x, is_tanh(x, approximate, "cuda_vector"), unroll, threads, stream)
