"""Ctrl-C and SIGTERM: the first lets the row at hand be finished, the second stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

told: list[int] = []  # the signals that asked this command line to end
_finishing: list[str] = []  # what a first signal waits for
_waiting: list[float] = []  # since when it does


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """While inside, SIGTERM ends a run as Ctrl-C does. Both are remembered: an exception can get lost."""
    told.clear()
    _waiting.clear()
    if threading.current_thread() is not threading.main_thread():  # others cannot have handlers
        yield
        return
    wanted = [signal.SIGINT, signal.SIGTERM]
    before = {each: signal.getsignal(each) for each in wanted}
    for each in wanted:
        if before[each] is not signal.SIG_IGN:
            signal.signal(each, _end)
    try:
        yield
    finally:
        for each in wanted:
            signal.signal(each, before[each] or signal.SIG_DFL)


def _end(number: int, frame: Any) -> None:
    told.append(number)
    if len(told) > 1 or not _finishing:
        raise KeyboardInterrupt
    _waiting.append(time.monotonic())
    line = f"\nrunner: finishing {_finishing[-1]}; a second Ctrl-C stops at once\n"
    with contextlib.suppress(OSError):  # nobody looks any more
        os.write(2, line.encode())  # print may be what was interrupted


@contextlib.contextmanager
def finishing(what: str) -> Iterator[None]:
    """A first signal lets the block come to its end, and ends the run there. `what` is said when it comes."""
    check()
    _finishing.append(what)
    try:
        yield
    finally:
        _finishing.pop()
    check()


def waiting() -> bool:
    """Whether a signal has come, and what was at hand is being finished."""
    return bool(_waiting)


def check(after_s: float = 0.0) -> None:
    """Raises KeyboardInterrupt where a signal has been waiting for that long."""
    if _waiting and time.monotonic() - _waiting[0] >= after_s:
        raise KeyboardInterrupt
