"""One trial on a CUDA device: flush, hold, record, call, record, synchronize.

Each trick is one small method; METHODOLOGY.md says what each is for and what it costs.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from runner.samples import Sample, Trial

_FLUSH_L2_MULTIPLE = 4
_MOST_HOLD_US = 50_000.0  # a call whose host side takes longer than this is not held
_SPARE_US = 100.0  # the host's caches are colder between other variants' turns
_HOLD_TRIES = 4


class CudaClock:
    """Times calls on one device's current stream. Times are microseconds."""

    def __init__(self, device: str, flush: bool = True) -> None:
        self.device = torch.device(device)
        self.flushes = flush
        torch.cuda.set_device(self.device)
        size = _FLUSH_L2_MULTIPLE * torch.cuda.get_device_properties(self.device).L2_cache_size
        self._lines = torch.zeros(max(size, 1 << 26) // 4, dtype=torch.float32, device=self.device)
        self._sink = torch.zeros((), dtype=torch.float32, device=self.device)
        self._cycles_per_us = self._calibrate_hold()
        self.event_overhead_us = self._measure_event_pair()

    def trial(self, trial: Trial, hold_us: float) -> tuple[Sample, Any]:
        """One timed call: its sample and its output.

        When the device caught up with the host while it enqueued, launch latency sat between the
        events: the call is timed again under a longer hold. `held` is False when no hold was long
        enough, or when `hold_us` is 0 (the call is known to synchronize).
        """
        sample, output = self._once(trial, hold_us)
        for _ in range(_HOLD_TRIES if hold_us else 0):
            if sample.held:
                break
            hold_us, output = min(2.0 * hold_us, _MOST_HOLD_US), None
            sample, output = self._once(trial, hold_us)
        return sample, output

    def _once(self, trial: Trial, hold_us: float) -> tuple[Sample, Any]:
        trial.prepare()
        start, end = self._events()
        self.synchronize()
        if self.flushes:
            self.flush()
        self.hold(hold_us)
        start_ns = time.perf_counter_ns()
        start.record()
        before = time.perf_counter_ns()
        output = trial.call()
        after = time.perf_counter_ns()
        end.record()
        held = not start.query()
        self.synchronize()
        device_us = max(start.elapsed_time(end) * 1e3 - self.event_overhead_us, 0.0)
        return Sample(start_ns, device_us, (after - before) / 1e3, held), output

    def flush(self) -> None:
        """Evict what the caches hold. It ends with a read: a flush that only writes leaves dirty lines,
        and the next kernel would pay for writing them back."""
        self._lines.zero_()
        torch.sum(self._lines, dim=0, out=self._sink)

    def hold(self, microseconds: float) -> None:
        """Keep the stream busy while the host enqueues, so that no launch latency is timed."""
        torch.cuda._sleep(int(microseconds * self._cycles_per_us))

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def hold_for(self, trial: Trial) -> float:
        """A hold that outlasts the call's host time with room to spare; 0 when none does."""
        self._once(trial, 1_000.0)
        host_us = max(self._once(trial, 1_000.0)[0].host_us for _ in range(2))
        hold_us = min(2.0 * host_us + _SPARE_US, _MOST_HOLD_US)
        for _ in range(_HOLD_TRIES):
            if self._once(trial, hold_us)[0].held:
                return hold_us
            hold_us = min(2.0 * hold_us, _MOST_HOLD_US)
        return 0.0

    def end_to_end_us(self, trial: Trial) -> float:
        """Wall time of one call and its synchronize, nothing held."""
        trial.prepare()
        if self.flushes:
            self.flush()
        self.synchronize()
        before = time.perf_counter_ns()
        trial.call()
        self.synchronize()
        return (time.perf_counter_ns() - before) / 1e3

    def _events(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def _calibrate_hold(self) -> float:
        """Cycles of `_sleep` per microsecond at the present clock."""
        rates = []
        for _ in range(5):
            start, end = self._events()
            start.record()
            torch.cuda._sleep(1_000_000)
            end.record()
            self.synchronize()
            rates.append(1_000_000 / (start.elapsed_time(end) * 1e3))
        return statistics.median(rates)

    def _measure_event_pair(self) -> float:
        """What two events with nothing between them read, under the hold."""
        readings = []
        for _ in range(30):
            start, end = self._events()
            self.flush()
            self.hold(50.0)
            start.record()
            end.record()
            self.synchronize()
            readings.append(start.elapsed_time(end) * 1e3)
        return statistics.median(readings)
