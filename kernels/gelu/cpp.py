"""GeLU by `kernels::gelu_cpp`, whose library is loaded before this module."""

from __future__ import annotations

import torch

from kernels.gelu.registration import gelu_by

_gelu = gelu_by("gelu_cpp", "cpp")


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x: any shape and strides, floating; the result follows x's dense strides, as torch's does."""
    return _gelu(x, approximate)
