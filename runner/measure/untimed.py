"""How long the calls take that no clock times, where the machine lets them run."""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter_ns  # bound now: a variant may replace it later

import torch

from runner.measure.samples import Trial
from runner.measure.seen import ENOUGH_UNTIMED, UNTIMED_SLACK_US

_NUMBERS = torch.zeros(1 << 16)  # enough that torch gives every thread some
_WAITED_US = 1000.0  # adding to them takes some 20 us
_MOST_S = 0.25


class Untimed:
    """Calls of a trial and their synchronizes: how long each took is in `walls_us`, in microseconds.

    Work of our own on every thread, before and after each call, tells whether the machine makes everybody
    wait for a processor: a call beside which it did says nothing about the trial and is left out.
    """

    def __init__(self, trial: Trial, synchronize: Callable[[], None]) -> None:
        self.trial, self.synchronize = trial, synchronize
        self.walls_us: list[float] = []

    def call(self) -> None:
        """One call."""
        self.trial.prepare()
        self.synchronize()
        waited = _own_work_us()
        start = perf_counter_ns()
        self.trial.call()
        self.synchronize()
        wall_us = (perf_counter_ns() - start) / 1e3
        if max(waited, _own_work_us()) <= _WAITED_US:
            self.walls_us.append(wall_us)

    def settle(self, plain_us: float = UNTIMED_SLACK_US) -> list[float]:
        """The times; of more calls where all took longer than `plain_us` and are too few to say so."""
        end = time.monotonic() + _MOST_S
        while len(self.walls_us) < ENOUGH_UNTIMED and time.monotonic() < end:
            if any(us <= plain_us for us in self.walls_us):
                break
            self.call()
        return self.walls_us


def _own_work_us() -> float:
    start = perf_counter_ns()
    _NUMBERS.add_(1.0)
    return (perf_counter_ns() - start) / 1e3
