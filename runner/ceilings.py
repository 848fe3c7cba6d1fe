"""What this device can do, measured on it: the copy rate by size."""

from __future__ import annotations

import statistics

import torch

from runner.measure import Watch, take_turns
from runner.samples import Trial

_TRIALS = 10


def copy_gbps(clock, device: str, total_bytes: int) -> float:
    """GB/s of a copy that moves `total_bytes` (read plus written), median, on the given clock."""
    each = max(total_bytes // 2, 1)
    source = torch.full((each,), 1, dtype=torch.uint8, device=device)
    sink = torch.empty_like(source)
    (series,) = take_turns(clock, [Trial(lambda: sink.copy_(source))], _TRIALS, 2, 0, Watch())
    return 2 * each / statistics.median(series.device_us) / 1e3
