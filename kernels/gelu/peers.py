"""GeLU of other projects, to measure beside ours. Each is imported when it is called."""

from __future__ import annotations

import torch


def flag_gems(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """FlagGems' Triton kernel (github.com/FlagOpen/FlagGems). x: any shape, floating, on a GPU."""
    import flag_gems

    return flag_gems.ops.gelu(x, approximate=approximate)
