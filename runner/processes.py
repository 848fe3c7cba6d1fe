"""Processes that must not outlive others: a worker its parent, compilers their worker."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_SET_PDEATHSIG = 1  # linux/prctl.h
_TRIES = 20
_PAUSE_S = 0.02
_LOOK_S = 0.2


def die_with_parent() -> None:
    """Linux: a killed parent takes this process along."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def end_session(leader: int) -> None:
    """Kill every process of the session that `leader` opened.

    Its process group is not enough: ninja starts each command in a group of its own.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(_TRIES):  # one may have started another meanwhile
        living = members(leader)
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not living:
            return
        time.sleep(_PAUSE_S)


def members(leader: int) -> list[int]:
    """The living processes of a session; empty where there is no /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            # After the name, which may hold anything: state, parent, group, session.
            state, _, _, session = path.read_bytes().rpartition(b")")[2].split()[:4]
            if int(session) == leader and state not in (b"Z", b"X"):
                found.append(int(path.parent.name))
    return found


def guard_session() -> int | None:
    """Leave a process behind that ends this session as soon as the caller, its leader, is gone.

    Returns the descriptor by which it sees that: only the caller may hold it. To be called early: the
    guard is a fork. It is nobody's child, so that waiting for any child does not wait for it.
    """
    if sys.platform != "linux" or os.getsid(0) != os.getpid():
        return None
    alive, held = os.pipe()
    leader = os.getpid()
    middle = os.fork()
    if middle == 0:
        try:
            if os.fork() == 0:
                _guard(leader, alive)
        finally:
            os._exit(0)
    os.waitpid(middle, 0)
    os.close(alive)
    return held


def _guard(leader: int, alive: int) -> None:
    os.setsid()  # outside what it ends, and out of reach of a terminal
    os.dup2(alive, 0)
    os.closerange(1, os.sysconf("SC_OPEN_MAX"))  # among them the output that the parent reads to its end
    os.read(0, 1)
    while leader in members(leader):  # it was closed by hand
        time.sleep(_LOOK_S)
    end_session(leader)
