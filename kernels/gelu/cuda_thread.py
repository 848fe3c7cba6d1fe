"""GeLU by `kernels::gelu_cuda_thread`, whose library is loaded before this module."""

from __future__ import annotations

import torch

from kernels.gelu.registration import is_tanh, register

register("gelu_cuda_thread")


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x: any shape and strides, floating; the result follows x's dense strides, as torch's does."""
    return torch.ops.kernels.gelu_cuda_thread(x, is_tanh(x, approximate, "cuda_thread"))
