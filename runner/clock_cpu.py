"""One trial on the CPU: flush the caches, read the clock, call, read the clock."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from runner.samples import Sample, Trial

_FLUSH_MULTIPLE = 2
_DEFAULT_CACHE_BYTES = 32 << 20  # where the system does not say
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class CpuClock:
    """Times calls on the CPU with the process's thread count. Times are microseconds."""

    event_overhead_us = 0.0

    def __init__(self, flush: bool = True) -> None:
        self.flushes = flush
        size = _FLUSH_MULTIPLE * last_level_cache_bytes()
        self._lines = torch.zeros(size // 4, dtype=torch.float32)

    def trial(self, trial: Trial, hold_us: float = 0.0) -> tuple[Sample, Any]:
        """One timed call: its sample and its output.

        A CPU call is done when it returns, so device and host time are the same.
        """
        trial.prepare()
        if self.flushes:
            self.flush()
        before = time.perf_counter_ns()
        output = trial.call()
        elapsed = (time.perf_counter_ns() - before) / 1e3
        return Sample(before, elapsed, elapsed), output

    def flush(self) -> None:
        """Evict what the caches hold, dirty lines last."""
        self._lines.zero_()
        torch.sum(self._lines)

    def synchronize(self) -> None:
        """Nothing is ever in flight."""

    def hold_for(self, trial: Trial) -> float:
        return 0.0

    def end_to_end_us(self, trial: Trial) -> float:
        return self.trial(trial)[0].device_us


def last_level_cache_bytes() -> int:
    """The largest cache that the system reports for CPU 0."""
    sizes = [_parse_size(path.read_text()) for path in _CACHES.glob("index*/size")]
    return max(sizes, default=_DEFAULT_CACHE_BYTES)


def _parse_size(text: str) -> int:
    text = text.strip()
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
