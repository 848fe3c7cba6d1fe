"""Timing on a CUDA device: flush, hold, record, call, record, synchronize.

Each trick is one small method or class; METHODOLOGY.md says what each is for and what it costs.
"""

from __future__ import annotations

import ctypes
import math
import os
import statistics
from time import perf_counter_ns  # bound now: a variant may replace it later
from typing import Any

import torch

from runner.measure.samples import Returned, Sample, Timer, Trial, ignore

_FLUSH_L2_MULTIPLE = 4
_LEAST_FLUSH_BYTES = 64 << 20
_MOST_HOLD_US = 50_000.0  # a call whose host side takes longer than this is not held
_SPARE_US = 100.0  # the host's caches are colder between other variants' turns
_HOLD_TRIES = 4
_BURST_US = 2_000.0  # long enough that the two events and the first launch are nothing
_MOST_BURST_CALLS = 1_000  # the queue of launches holds about as many
_PROFILERS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")  # set by Nsight Systems and Compute


class CudaClock:
    """One device's current stream, its cache, and what an event pair costs. Times are microseconds."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        torch.cuda.set_device(self.device)
        size = _FLUSH_L2_MULTIPLE * torch.cuda.get_device_properties(self.device).L2_cache_size
        self.flush_bytes = max(size, _LEAST_FLUSH_BYTES)
        self._lines = torch.zeros(self.flush_bytes // 4, dtype=torch.float32, device=self.device)
        self._sink = torch.zeros((), dtype=torch.float32, device=self.device)
        self._reset_persisting = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
        self.holds = not any(os.environ.get(name) for name in _PROFILERS)  # they serialize: no use to hold
        self._cycles_per_us = self._calibrate_hold()
        self.event_overhead_us = self._measure_event_pair()

    def timer(self, trial: Trial, timing: str) -> Timer:
        """The trial, warmed up already, ready to be timed."""
        if timing == "graph":
            return GraphTimer(self, trial)
        if timing == "burst":
            return BurstTimer(self, trial)
        return CallTimer(self, trial, flush=timing == "cold")

    def flush(self) -> None:
        """Evict what the caches hold. It ends with a read: a flush that only writes leaves dirty lines,
        and the next kernel would pay for writing them back."""
        self._reset_persisting()  # lines that a call marked to stay are ordinary ones again
        self._lines.zero_()
        torch.sum(self._lines, dim=0, out=self._sink)

    def hold(self, microseconds: float) -> None:
        """Keep the stream busy while the host enqueues, so that no launch latency is timed.

        It ends by itself: a call that synchronizes waits for it, and nothing hangs.
        """
        if self.holds and microseconds > 0:
            torch.cuda._sleep(int(microseconds * self._cycles_per_us))

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def events(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Device time between two events that were reached, less what an empty pair reads."""
        return max(start.elapsed_time(end) * 1e3 - self.event_overhead_us, 0.0)

    def end_to_end_us(self, trial: Trial, flush: bool) -> float:
        """Wall time of one call and its synchronize, nothing held."""
        trial.prepare()
        if flush:
            self.flush()
        self.synchronize()
        before = perf_counter_ns()
        trial.call()
        self.synchronize()
        return (perf_counter_ns() - before) / 1e3

    def _calibrate_hold(self) -> float:
        """Cycles of `_sleep` per microsecond at the present clock."""
        rates = []
        for _ in range(5):
            start, end = self.events()
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
            start, end = self.events()
            self.flush()
            self.hold(50.0)
            start.record()
            end.record()
            self.synchronize()
            readings.append(start.elapsed_time(end) * 1e3)
        return statistics.median(readings)


class CallTimer:
    """One call between two events, after a flush (cold) or without one (warm)."""

    def __init__(self, clock: CudaClock, trial: Trial, flush: bool) -> None:
        self.clock, self.trial, self.flush = clock, trial, flush
        self.hold_us = self._calibrated()

    def once(self, returned: Returned = ignore) -> tuple[Sample, Any]:
        """Timed again under a longer hold when the device caught up with the host while it enqueued.

        `held` is False when no hold was long enough; a call that is known to synchronize is not held.
        """
        hold_us = self.hold_us
        sample, output = self._attempt(hold_us, returned)
        for _ in range(_HOLD_TRIES if hold_us else 0):
            if sample.held:
                break
            hold_us, output = min(2.0 * hold_us, _MOST_HOLD_US), None
            sample, output = self._attempt(hold_us, returned)
        return sample, output

    def _attempt(self, hold_us: float, returned: Returned = ignore) -> tuple[Sample, Any]:
        clock, trial = self.clock, self.trial
        trial.prepare()
        start, end = clock.events()
        clock.synchronize()
        if self.flush:
            clock.flush()
        clock.hold(hold_us)
        start_ns = perf_counter_ns()
        start.record()
        before = perf_counter_ns()
        output = trial.call()
        after = perf_counter_ns()
        end.record()
        held = not start.query()
        returned(output)  # in stream order: what the call left to another stream is not waited for
        clock.synchronize()
        return Sample(start_ns, clock.between(start, end), (after - before) / 1e3, held), output

    def _calibrated(self) -> float:
        """A hold that outlasts the call's host time with room to spare; 0 when none does."""
        self._attempt(1_000.0)
        host_us = max(self._attempt(1_000.0)[0].host_us for _ in range(2))
        hold_us = min(2.0 * host_us + _SPARE_US, _MOST_HOLD_US)
        for _ in range(_HOLD_TRIES):
            if self._attempt(hold_us)[0].held:
                return hold_us
            hold_us = min(2.0 * hold_us, _MOST_HOLD_US)
        return 0.0

    def end_to_end_us(self) -> float:
        return self.clock.end_to_end_us(self.trial, self.flush)


class GraphTimer:
    """One call captured in a CUDA graph; what is timed is its replay, after a flush that is not timed.

    Raises RuntimeError where the call cannot be captured (it synchronizes, say).
    """

    def __init__(self, clock: CudaClock, trial: Trial) -> None:
        self.clock, self.trial = clock, trial
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # capture wants a warmed-up side stream
            for _ in range(3):
                trial.call()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph):
            self.output = trial.call()
        self._replay = CallTimer(clock, Trial(self._once_more, self._poison), flush=True)

    def _poison(self) -> None:
        """A replay writes where the last one wrote: what it leaves out must not be right by that."""
        for tensor in self.output if isinstance(self.output, tuple) else (self.output,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                tensor.detach().fill_(math.nan)

    def _once_more(self) -> Any:
        self.graph.replay()
        return self.output

    def once(self, returned: Returned = ignore) -> tuple[Sample, Any]:
        return self._replay.once(returned)

    def end_to_end_us(self) -> float:
        return self._replay.end_to_end_us()


class BurstTimer:
    """Calls back to back between two events, warm; times are per call."""

    def __init__(self, clock: CudaClock, trial: Trial) -> None:
        self.clock, self.trial = clock, trial
        sample, _ = CallTimer(clock, trial, flush=False).once()
        wanted = _BURST_US / max(sample.device_us, 1.0)
        self.calls = int(min(max(wanted, 2.0), _MOST_BURST_CALLS))

    def once(self, returned: Returned = ignore) -> tuple[Sample, Any]:
        clock = self.clock
        self.trial.prepare()
        start, end = clock.events()
        clock.synchronize()
        clock.hold(_SPARE_US)
        start_ns = perf_counter_ns()
        start.record()
        before = perf_counter_ns()
        for _ in range(self.calls):
            output = self.trial.call()
        after = perf_counter_ns()
        end.record()
        returned(output)
        clock.synchronize()
        each = clock.between(start, end) / self.calls
        return Sample(start_ns, each, (after - before) / 1e3 / self.calls), output

    def end_to_end_us(self) -> float:
        return self.clock.end_to_end_us(self.trial, flush=False)
