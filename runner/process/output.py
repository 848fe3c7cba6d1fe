"""What a worker prints: copied to a log, bounded, its end remembered for the reason of its death."""

from __future__ import annotations

import collections
import contextlib
import select
import sys
import threading
import time
from typing import Any, BinaryIO, Protocol

MOST_PRINTED = 1 << 20  # bytes, by one variant in one stage of a request
_FAULT = b"Fatal Python error: "


class Log(Protocol):
    """What a worker's output is written to, in whole lines mostly."""

    def write(self, line: bytes) -> object:
        """Raises OSError where the disk does not take it."""


class Output:
    """Copies the worker's output to the current run's log, bounded, and remembers its end and its size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: Log | None = None
        self._tail: collections.deque[bytes] = collections.deque(maxlen=20)
        self._dying = False
        self._thread: threading.Thread | None = None
        self._stream: BinaryIO | None = None
        self.echo = False  # also to standard error, for mode=debug
        self.count()

    def send_to(self, log: Log | None) -> None:
        with self._lock:
            self._log = log

    def count(self) -> None:
        """From here on, for another request."""
        self._printed: collections.Counter[tuple] = collections.Counter()
        self._whose: tuple = ()

    def count_for(self, *whose: Any) -> None:
        """What comes now is of this variant and stage."""
        self._whose = whose

    @property
    def printed(self) -> int:
        """Bytes that came for whom it is counted now."""
        return self._printed[self._whose]

    def settle(self) -> None:
        """Wait (a moment at most) until what the worker has written so far is in the log."""
        if self._stream is None:
            return
        unread = select.poll()  # select() takes no descriptor above 1023, and a caller may have thousands
        unread.register(self._stream, select.POLLIN)
        deadline = time.monotonic() + 0.5
        while self._stream is not None and time.monotonic() < deadline and unread.poll(10):
            time.sleep(0.005)

    def follow(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._thread = threading.Thread(target=self._copy, args=(stream,), daemon=True)
        self._thread.start()

    def _copy(self, stream: BinaryIO) -> None:
        while line := stream.readline(1 << 16):
            self._printed[self._whose] += len(line)
            with self._lock:
                self._remember(line)
                self._write(line)
            if self.echo:
                with contextlib.suppress(OSError):  # nobody looks any more; the worker must not wait for that
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
        self._stream = None
        stream.close()

    def _remember(self, line: bytes) -> None:
        """Up to where Python's fault handler begins: what was said before (by glibc, say) is the reason."""
        self._dying = self._dying or line.startswith(_FAULT)
        if not self._dying:
            self._tail.append(line)

    def _write(self, line: bytes) -> None:
        """A stage's first megabyte: whoever prints more is ended for it."""
        if self._log is None or self.printed > MOST_PRINTED:
            return
        try:
            self._log.write(line)
        except OSError:  # a full disk: the rows say so, and the worker must not wait
            self._log = None

    def join(self) -> None:
        """Wait until what the worker had written is read (a grandchild may hold the pipe open)."""
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    def last_line(self) -> str:
        with self._lock:
            lines = [line.decode(errors="replace").strip() for line in self._tail]
        return next((line for line in reversed(lines) if line), "")[:300]
