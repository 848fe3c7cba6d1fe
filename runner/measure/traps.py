"""The well-known wrong ways to time a call, each as one function beside the right one. For teaching only.

Every function takes a clock and a trial and gives what somebody who timed that way would have read,
in microseconds. `experiment=traps` prints them next to the row's own mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from runner.measure.samples import Trial

_CALLS = 10
_IDLE_S = 1.5  # long enough for a card to lower its clocks


@dataclass(frozen=True)
class Trap:
    """`cuda_only` ones need a device that works while the host goes on."""

    name: str
    lesson: str
    read: Callable[[Any, Trial], float]
    cuda_only: bool = False


def no_synchronize(clock, trial: Trial) -> float:
    trial.prepare()
    clock.synchronize()
    before = time.perf_counter_ns()
    trial.call()
    elapsed = (time.perf_counter_ns() - before) / 1e3
    clock.synchronize()
    return elapsed


def launch_latency_inside(clock, trial: Trial) -> float:
    readings = []
    for _ in range(_CALLS):
        trial.prepare()
        clock.flush()
        clock.synchronize()  # the stream is idle: the first event is reached at once
        start, end = clock.events()
        start.record()
        trial.call()
        end.record()
        clock.synchronize()
        readings.append(start.elapsed_time(end) * 1e3)
    return fmean(readings)


def warm_cache(clock, trial: Trial) -> float:
    timer = clock.timer(trial, "warm")
    return fmean(timer.once()[0].device_us for _ in range(_CALLS))


def one_trial(clock, trial: Trial) -> float:
    """The worst of a few single trials: the one that somebody will happen to get."""
    timer = clock.timer(trial, "cold")
    return max(timer.once()[0].device_us for _ in range(_CALLS))


def after_idling(clock, trial: Trial) -> float:
    """What the variant that happens to come first reads, before the clocks are up."""
    timer = clock.timer(trial, "cold")
    clock.synchronize()
    time.sleep(_IDLE_S)
    return fmean(timer.once()[0].device_us for _ in range(_CALLS))


def write_only_flush(clock, trial: Trial) -> float:
    readings = []
    for _ in range(_CALLS):
        trial.prepare()
        start, end = clock.events()
        clock.synchronize()
        torch.zeros(clock.flush_bytes // 4, device=clock.device)
        clock.hold(500.0)
        start.record()
        trial.call()
        end.record()
        clock.synchronize()
        readings.append(clock.between(start, end))
    return fmean(readings)


TRAPS = (
    Trap("no synchronize", "the call returned before the work was done", no_synchronize, True),
    Trap("launch latency", "the host was still launching between the events", launch_latency_inside, True),
    Trap("write-only flush", "the flush's dirty lines were written back on its time", write_only_flush, True),
    Trap("warm cache", "the input was still in the cache, as it will not be in use", warm_cache),
    Trap("one trial", "one timing may be any of them; this was the slowest of ten", one_trial),
    Trap("not in turns", "timed alone after the machine had idled: its clocks were down", after_idling),
)


def readings(clock, trial: Trial, first_call_ms: float, mean_us: float) -> Iterator[tuple[str, str, float]]:
    """(name, lesson, microseconds) of every trap that exists on this clock's device."""
    first = (first_call_ms * 1e3 + (_CALLS - 1) * mean_us) / _CALLS
    yield "first call counted", "the first call compiles and loads; here it is one of ten", first
    for trap in TRAPS:
        if not trap.cuda_only or hasattr(clock, "events"):
            yield trap.name, trap.lesson, trap.read(clock, trial)
