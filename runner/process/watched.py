"""A process that is watched while its answer is waited for. Linux; elsewhere nothing is known of it."""

from __future__ import annotations

import contextlib
import os
import signal

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LONGEST = 512  # bytes of what is read: a name of at most 64, then the state; or seven numbers


class Watched:
    """Its state and memory. The files of /proc are opened once: both are asked for with every event.

    They stay those of this process, whoever gets its number after it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._stat, self._statm = _opened(f"/proc/{pid}/stat"), _opened(f"/proc/{pid}/statm")

    def go_on(self) -> None:
        """Have it go on where a signal has stopped it: nobody else would, and whoever asked it would wait."""
        with contextlib.suppress(ProcessLookupError):
            if _read(self._stat).rpartition(b")")[2].split()[:1] == [b"T"]:
                os.kill(self.pid, signal.SIGCONT)

    def resident_bytes(self) -> int:
        """What it holds in memory; 0 where that cannot be read."""
        words = _read(self._statm).split()
        return int(words[1]) * _PAGE_BYTES if words else 0

    def close(self) -> None:
        """Nothing is known of it from here on."""
        for descriptor in (self._stat, self._statm):
            if descriptor is not None:
                os.close(descriptor)
        self._stat = self._statm = None


def _opened(path: str) -> int | None:
    """None where the process has ended, or there is no /proc."""
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return None


def _read(descriptor: int | None) -> bytes:
    """The file's beginning as it is now; empty when the process has ended."""
    if descriptor is not None:
        with contextlib.suppress(OSError):
            return os.pread(descriptor, _LONGEST, 0)
    return b""
