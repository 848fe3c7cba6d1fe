"""A timed call and what one timing of it gave: the vocabulary that clocks and the turn loop share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

TIMINGS = ("cold", "warm", "graph", "burst")
COLD = ("cold", "graph")  # the timings that find the cache empty
Returned = Callable[[Any], None]  # is given a call's output at once, before anything waits for the device


def ignore(output: Any) -> None:
    """Nothing is to be done with an output."""


def _nothing() -> None:
    pass


@dataclass
class Trial:
    """What is timed: `prepare` runs untimed before each `call`.

    `checked_us` is how long the fastest call took when it was checked; 0 where nobody looked.
    """

    call: Callable[[], Any]
    prepare: Callable[[], Any] = _nothing
    checked_us: float = 0.0

    @property
    def repeatable(self) -> bool:
        """Whether `call` may be made several times in a row."""
        return self.prepare is _nothing


@dataclass(frozen=True)
class Sample:
    """One timing of a call. Times in microseconds per call; `start_ns` is the host's monotonic clock."""

    start_ns: int
    device_us: float
    host_us: float
    held: bool = True  # False: launch latency sits in device_us


class Timer(Protocol):
    """A trial that is ready to be timed on a clock in one of the `TIMINGS`."""

    def once(self, returned: Returned = ignore) -> tuple[Sample, Any]:
        """Time it once: the sample and the call's output, which `returned` gets first."""

    def end_to_end_us(self) -> float:
        """Wall time of one call and its synchronize."""
