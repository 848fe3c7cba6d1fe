"""The measuring core: variants take turns, trial by trial, on one clock."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.samples import Sample, Trial
from runner.statistics import Summary, summarize

_END_TO_END_CALLS = 5


@dataclass
class Series:
    """The samples of one variant, in time order."""

    rounds: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    hold_us: float = 0.0
    end_to_end_us: float = 0.0

    @property
    def device_us(self) -> list[float]:
        return [sample.device_us for sample in self.samples]

    def add(self, round_: int, turn: int, sample: Sample) -> None:
        self.rounds.append(round_)
        self.turns.append(turn)
        self.samples.append(sample)


class Watch:
    """Told what is about to run, and shown each variant's last timed output. This one looks away."""

    def step(self, index: int, what: str) -> None:
        """Called before each step that runs a variant's code."""

    def output(self, index: int, output: Any) -> None:
        """Called with the output of a variant's last timed call."""


def clock_for(device: str, flush: bool = True):
    """The clock of a device: `CudaClock` or `CpuClock`."""
    if device.startswith("cuda"):
        from runner.clock_cuda import CudaClock

        return CudaClock(device, flush)
    from runner.clock_cpu import CpuClock

    return CpuClock(flush)


def take_turns(
    clock, trials: Sequence[Trial], count: int, warmup: int, seed: int, watch: Watch
) -> list[Series]:
    """`count` timed calls of each trial, one of each per round, in an order reshuffled every round."""
    series = [Series() for _ in trials]
    for index, trial in enumerate(trials):
        watch.step(index, "warmup")
        for _ in range(warmup):
            trial.prepare()
            trial.call()
        clock.synchronize()
        series[index].hold_us = clock.hold_for(trial)
    order = list(range(len(trials)))
    shuffle = random.Random(seed).shuffle
    for round_ in range(count):
        shuffle(order)
        for turn, index in enumerate(order):
            watch.step(index, f"trial {round_ + 1}/{count}")
            sample, output = clock.trial(trials[index], series[index].hold_us)
            series[index].add(round_, turn, sample)
            if round_ == count - 1:
                watch.output(index, output)
            del output  # freed before the next call allocates
    for index, trial in enumerate(trials):
        watch.step(index, "end to end")
        series[index].end_to_end_us = statistics.median(
            clock.end_to_end_us(trial) for _ in range(_END_TO_END_CALLS)
        )
    return series


@dataclass(frozen=True)
class Measurement:
    """What `benchmark` returns. Times are microseconds per call."""

    device: str
    device_us: Summary
    host_us: Summary
    end_to_end_us: float
    event_overhead_us: float
    held: bool  # False: launch latency may sit in device_us
    samples: tuple[Sample, ...]


def benchmark(
    fn: Callable, *inputs: Any, trials: int = 30, warmup: int = 3, flush: bool = True
) -> Measurement:
    """Time `fn(*inputs)` in this process with the same core that a run uses.

    The device is that of the first tensor among `inputs` (the CPU without one). Nothing is checked.
    """
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    device = str(tensors[0].device) if tensors else "cpu"
    clock = clock_for(device, flush)
    (series,) = take_turns(clock, [Trial(lambda: fn(*inputs))], trials, warmup, 0, Watch())
    return Measurement(
        device=device,
        device_us=summarize(series.device_us),
        host_us=summarize([sample.host_us for sample in series.samples]),
        end_to_end_us=series.end_to_end_us,
        event_overhead_us=clock.event_overhead_us,
        held=all(sample.held for sample in series.samples),
        samples=tuple(series.samples),
    )
