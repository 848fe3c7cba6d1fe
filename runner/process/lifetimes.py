"""Processes that must not outlive others: a worker its parent, compilers their worker."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "KERNEL_RUNNER_WORKER"  # in a worker's environment, and so in that of what it starts
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_CHILD_SUBREAPER = 1, 4, 36  # linux/prctl.h
_TASKS = "/proc/self/task"
_TRIES = 20
_PAUSE_S = 0.02
_LOOK_S = 0.2


def die_with_parent() -> None:
    """Linux: a killed parent takes this process along."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def hide_memory() -> None:
    """Linux: other processes of this user cannot read this one's memory. Root's can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Linux: a descendant whose parent ends becomes a child of this process, so that `family` finds it.

    To be called after `guard_session`, whose guard is to be nobody's child.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def end_session(leader: int, mark: str = "") -> None:
    """Kill every process of the session that `leader` opened, and those that left it; see `family`.

    Its process group is not enough: ninja starts each command in a group of its own.
    """
    for _ in range(_TRIES):  # one may have started another meanwhile
        living = family(leader, mark) - {os.getpid()}
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not living:
            return
        time.sleep(_PAUSE_S)


def family(leader: int, mark: str = "") -> set[int]:
    """The living processes of a session, those whose environment holds `mark`, and their descendants.

    A child that opens a session of its own keeps its environment or its parent, at least while that lives.
    Empty where there is no /proc.
    """
    known = list(_living())
    found = {pid for pid, _, session in known if session == leader or pid == leader}
    found |= {pid for pid, _, _ in known if mark and _marked(pid, mark)}
    while more := {pid for pid, parent, _ in known if parent in found} - found:
        found |= more
    return found


def children() -> set[int]:
    """This process's living children, those that it adopted too; empty where there is no /proc."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError):
        for task in os.listdir(_TASKS):  # not by pathlib: this is asked after each timed call
            with contextlib.suppress(OSError):  # the thread ended meanwhile
                found |= set(map(int, _read(f"{_TASKS}/{task}/children").split()))
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def command(pid: int) -> str:
    """The words that a process was started with; empty when it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def members(leader: int) -> list[int]:
    """The living processes of a session; empty where there is no /proc."""
    return [pid for pid, _, session in _living() if session == leader]


def _living() -> Iterator[tuple[int, int, int]]:
    """(number, parent, session) of each process that has not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            # After the name, which may hold anything: state, parent, group, session.
            state, parent, _, session = path.read_bytes().rpartition(b")")[2].split()[:4]
            if state not in (b"Z", b"X"):
                yield int(path.parent.name), int(parent), int(session)


def _marked(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):  # it ended, or is another user's
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


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
    end_session(leader, os.environ.get(MARK, ""))
