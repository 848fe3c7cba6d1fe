"""Addition as it reads."""

from __future__ import annotations

import torch


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a, b: shapes that broadcast; the result's dtype is what torch promotes theirs to."""
    return a + b
