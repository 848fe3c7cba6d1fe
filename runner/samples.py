"""A timed call and what one timing of it gave: the vocabulary that clocks and the turn loop share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _nothing() -> None:
    pass


@dataclass
class Trial:
    """What is timed: `prepare` runs untimed before each `call`."""

    call: Callable[[], Any]
    prepare: Callable[[], Any] = _nothing


@dataclass(frozen=True)
class Sample:
    """One timed call. Times in microseconds; `start_ns` is the host's monotonic clock."""

    start_ns: int
    device_us: float
    host_us: float
    held: bool = True  # False: launch latency sits in device_us
