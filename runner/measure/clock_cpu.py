"""Timing on the CPU: flush the caches, read the clock, call, read the clock."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns  # bound now: a variant may replace it later
from typing import Any

import torch

from runner.measure.samples import Returned, Sample, Timer, Trial, ignore

_FLUSH_MULTIPLE = 2
_DEFAULT_CACHE_BYTES = 32 << 20  # where the system does not say
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_SHORT_US = 100.0  # under this a warm trial makes several calls: reading the clock costs about 0.1 us
_BURST_US = 10_000.0
_MOST_CALLS = 10_000


class CpuClock:
    """Times calls on the CPU with the process's thread count. Times are microseconds."""

    event_overhead_us = 0.0

    def __init__(self) -> None:
        size = _FLUSH_MULTIPLE * last_level_cache_bytes()
        self._lines = torch.zeros(size // 4, dtype=torch.float32)

    def timer(self, trial: Trial, timing: str) -> Timer:
        """The trial, warmed up already, ready to be timed. There are no graphs on a CPU."""
        if timing == "graph":
            raise ValueError("timing=graph is for CUDA devices")
        return CpuTimer(self, trial, timing)

    def flush(self) -> None:
        """Evict what the caches hold, dirty lines last."""
        self._lines.zero_()
        torch.sum(self._lines)

    def synchronize(self) -> None:
        """Nothing is ever in flight."""


class CpuTimer:
    """A CPU call is done when it returns, so device, host and end-to-end time are the same.

    Cold: one call after a flush. Warm: as many calls as fill `_SHORT_US`. Burst: as fill `_BURST_US`.
    Not cold, `prepare` runs once before the calls of a trial, so a call that needs it is made alone.
    """

    def __init__(self, clock: CpuClock, trial: Trial, timing: str) -> None:
        self.clock, self.trial, self.flush = clock, trial, timing == "cold"
        self.calls = 1
        if not self.flush and trial.repeatable:
            each = min(self.once()[0].device_us for _ in range(3))
            fill = _BURST_US if timing == "burst" else _SHORT_US
            self.calls = int(min(max(fill / max(each, 0.01), 1.0), _MOST_CALLS))

    def once(self, returned: Returned = ignore) -> tuple[Sample, Any]:
        trial = self.trial
        trial.prepare()
        if self.flush:
            self.clock.flush()
        before = perf_counter_ns()
        for _ in range(self.calls):
            output = trial.call()
        each = (perf_counter_ns() - before) / 1e3 / self.calls
        returned(output)
        return Sample(before, each, each), output

    def end_to_end_us(self) -> float:
        return self.once()[0].device_us


def last_level_cache_bytes() -> int:
    """The largest cache that the system reports for CPU 0."""
    sizes = [_parse_size(path.read_text()) for path in _CACHES.glob("index*/size")]
    return max(sizes, default=_DEFAULT_CACHE_BYTES)


def _parse_size(text: str) -> int:
    text = text.strip()
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
