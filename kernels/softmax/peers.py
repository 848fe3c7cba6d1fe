"""Softmax of other projects, to measure beside ours. Each is imported when it is called."""

from __future__ import annotations

import torch


def liger(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Liger-Kernel's Triton kernel (github.com/linkedin/Liger-Kernel). x: any shape; dim: its last."""
    from liger_kernel.transformers.functional import liger_softmax

    return liger_softmax(x)


def flag_gems(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """FlagGems' Triton kernel (github.com/FlagOpen/FlagGems). x: any shape, on a GPU."""
    import flag_gems

    return flag_gems.ops.softmax(x, dim)


def quack(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """QuACK's kernel in the CuTe DSL (github.com/Dao-AILab/quack). x: (..., cols); dim: its last."""
    from quack.softmax import softmax

    return softmax(x.flatten(0, -2)).view_as(x)
