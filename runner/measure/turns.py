"""The measuring core: variants take turns, trial by trial, on one clock."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.measure.samples import COLD, TIMINGS, Sample, Trial
from runner.measure.seen import from_memory, plain_us
from runner.measure.statistics import Summary, summarize
from runner.measure.stopping import Exactly, Precision, Rounds, Rule
from runner.measure.untimed import Untimed

_random = random.SystemRandom()  # no variant can foresee whose turn it is
_CONFIRMING = 6  # rounds of either kind before a variant is called faster on inputs that it has seen


@dataclass
class Series:
    """The samples of one variant, in time order.

    `fresh` holds the rounds whose inputs no variant had seen. `beside_us` and `again_us` are the times of
    further calls on new and on the same inputs, which were made for the check alone and are no samples.
    """

    rounds: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)
    beside_us: list[float] = field(default_factory=list)
    again_us: list[float] = field(default_factory=list)
    warmup_us: list[float] = field(default_factory=list)
    end_to_end_us: float = 0.0
    stop_reason: str = ""

    @property
    def suspicion(self) -> str:
        """Why it seems to answer from memory; empty when it does not."""
        return from_memory(self.rounds, self.device_us, self.fresh, self.beside_us, self.again_us)

    @property
    def device_us(self) -> list[float]:
        return [sample.device_us for sample in self.samples]

    def add(self, round_: int, turn: int, sample: Sample) -> None:
        self.rounds.append(round_)
        self.turns.append(turn)
        self.samples.append(sample)


class Watch:
    """Told what is about to run, and shown each timed call's output. This one looks away."""

    lacking = False  # whether more rounds are needed on inputs that no variant has seen
    checking_s = 0.0  # of the time since the first round, what was not the timing's

    def step(self, index: int, what: str) -> None:
        """Called before each step that runs a variant's code."""

    def before_round(self, round_: int, new: bool | None) -> bool:
        """Called before each round; whether its inputs are new. None leaves that to the watch."""
        return False

    def before(self, index: int) -> None:
        """Called before each timed call."""

    def returned(self, output: Any) -> None:
        """Called with each timed call's output, before anything waits for the device."""

    def timed(self, index: int) -> None:
        """Called after each timed call, nothing in flight."""

    def unharmed(self, index: int) -> None:
        """Called after the calls of a variant that are not timed one by one."""

    def between_rounds(self, round_: int) -> None:
        """Called after each round, nothing in flight."""


def clock_for(device: str):
    """The clock of a device: `CudaClock` or `CpuClock`."""
    if device.startswith("cuda"):
        from runner.measure.clock_cuda import CudaClock

        return CudaClock(device)
    from runner.measure.clock_cpu import CpuClock

    return CpuClock()


def rule_for(trials: int, precision: float, min_trials: int, max_trials: int, budget_s: float) -> Rule:
    """When a variant has been timed enough; `trials` 0 is auto. The closing round makes one trial more."""
    if trials:
        return Exactly(trials - 1)
    return Precision(precision, min_trials - 1, max_trials - 1, budget_s)


def take_turns(
    clock,
    trials: Sequence[Trial],
    rules: Sequence[Rule],
    timing: str,
    warmup: int,
    watch: Watch,
    end_to_end: int = 5,
) -> list[Series]:
    """Time the trials together: every round times each once, in an order shuffled anew.

    Rounds go on until every rule is satisfied; `watch` may give one new inputs, and the closing round has
    them. Afterwards each is called `end_to_end` times with its synchronize.
    """
    series = [Series() for _ in trials]
    timers = []
    for index, trial in enumerate(trials):
        watch.step(index, "warmup")
        series[index].warmup_us = _warm_up(clock, trial, warmup)
        timers.append(clock.timer(trial, timing))
        watch.unharmed(index)
    turns = _Turns(timers, series, watch, timing)
    rounds = Rounds(rules)
    start = time.monotonic()
    while rounds.another([one.device_us for one in series], time.monotonic() - start - watch.checking_s):
        turns.round()
    turns.round(new=True)
    turns.beside()
    for index, timer in enumerate(timers):
        watch.step(index, "end to end")
        if end_to_end:
            wall = [timer.end_to_end_us() for _ in range(end_to_end)]
            series[index].end_to_end_us = statistics.median(wall)
            watch.unharmed(index)
        series[index].stop_reason = rounds.reasons[index]
    return series


def _warm_up(clock, trial: Trial, count: int) -> list[float]:
    """Calls that are no trials: how long they took, in microseconds."""
    untimed = Untimed(trial, clock.synchronize)
    for _ in range(count):
        untimed.call()
    return untimed.settle(plain_us(trial.checked_us)) if count else []


class _Turns:
    """The rounds of one `take_turns`."""

    def __init__(self, timers: list, series: list[Series], watch: Watch, timing: str) -> None:
        self.timers, self.series, self.watch, self.cold = timers, series, watch, timing in COLD
        self.order = list(range(len(timers)))
        self.count = 0

    def round(self, new: bool | None = None, beside: bool = False) -> None:
        """Each once. `new`: whether on new inputs; `beside`: for the check alone."""
        fresh = self.watch.before_round(self.count, new)
        _random.shuffle(self.order)
        for turn, index in enumerate(self.order):
            self.watch.step(index, f"trial {self.count + 1}")
            if fresh and not self.cold and not beside:  # the first call on new inputs is no warm one
                self._once(index)
            sample, one = self._once(index), self.series[index]
            if beside:
                (one.beside_us if fresh else one.again_us).append(sample.device_us)
                continue
            one.add(self.count, turn, sample)
            if fresh and self.cold:
                one.fresh.append(self.count)
        if not beside:
            self.watch.between_rounds(self.count)
            self.count += 1

    def _once(self, index: int) -> Sample:
        self.watch.before(index)
        sample, output = self.timers[index].once(self.watch.returned)
        self.watch.timed(index)
        del output  # freed before the next call allocates
        return sample

    def beside(self) -> None:
        """What the rounds left open: too few fresh ones, or a variant that seems to answer from memory."""
        while self.watch.lacking:
            self.round(new=True, beside=True)
        if any(one.suspicion for one in self.series):
            for _ in range(_CONFIRMING):  # side by side, so that a drift of the machine's is nobody's
                self.round(new=True, beside=True)
                self.round(new=False, beside=True)


@dataclass(frozen=True)
class Measurement:
    """What `benchmark` returns. Times are microseconds per call."""

    device: str
    timing: str
    device_us: Summary
    host_us: Summary
    end_to_end_us: float
    event_overhead_us: float
    held: bool  # False: launch latency may sit in device_us
    stop_reason: str
    samples: tuple[Sample, ...] = field(repr=False)


def benchmark(
    fn: Callable,
    *inputs: Any,
    trials: int = 0,
    timing: str = "cold",
    warmup: int = 3,
    precision: float = 0.005,
    budget_s: float = 2.0,
) -> Measurement:
    """Time `fn(*inputs)` in this process with the same core that a run uses. Nothing is checked.

    The device is that of the first tensor among `inputs` (the CPU without one). `trials` is exact; 0 goes on
    until the 95 % interval of the mean is within `precision` of it, or `budget_s` seconds are spent.
    Raises ValueError on an unknown timing and on counts below 0.
    """
    if timing not in TIMINGS:
        raise ValueError(f"timing={timing!r}: it is one of {', '.join(TIMINGS)}")
    if trials < 0 or warmup < 0:
        raise ValueError(f"trials={trials}, warmup={warmup}: neither can be below 0")
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    device = str(tensors[0].device) if tensors else "cpu"
    clock = clock_for(device)
    rules = [rule_for(trials, precision, 10, 10_000, budget_s)]
    (series,) = take_turns(clock, [Trial(lambda: fn(*inputs))], rules, timing, warmup, Watch())
    return Measurement(
        device=device,
        timing=timing,
        device_us=summarize(series.device_us),
        host_us=summarize([sample.host_us for sample in series.samples]),
        end_to_end_us=series.end_to_end_us,
        event_overhead_us=clock.event_overhead_us,
        held=all(sample.held for sample in series.samples),
        stop_reason=series.stop_reason,
        samples=tuple(series.samples),
    )
