"""The parent's end of a worker's pipe: pickled requests out, events in, each a line of JSON.

A variant runs in the worker and can reach the other end. Whatever it does there, reading here ends: with
an event, at the deadline, or with the verdict that the pipe cannot be trusted any more.
"""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

_EVENTS = ("step", "series", "output", "fresh", "done", "failed")
_LONGEST_LINE = 1 << 28  # bytes of an event: a million trials are a quarter of it
_LONGEST_S = 3600.0  # one wait; the system's own limits on it are lower than what a user may set
_LOOK_S = 0.2  # how often it is asked whether a silent worker still lives


class Garbage(Exception):
    """What came is no event of the request being served."""


class Pipe:
    """Requests are numbered; an event repeats the number and names the worker's process."""

    def __init__(
        self, end: socket.socket, process: subprocess.Popen, watch: Callable[[], None] = lambda: None
    ) -> None:
        """`watch` is called several times a second while an event is waited for, and may raise."""
        self._socket, self._process, self._watch = end, process, watch
        self._number = 0
        self._unread = bytearray()

    def ask(self, name: str, arguments: dict[str, Any], deadline: float) -> None:
        """Send a request. Raises TimeoutError at the deadline (of `time.monotonic`), or OSError."""
        self._number += 1
        self._socket.settimeout(_wait(deadline, _LONGEST_S))
        self._socket.sendall(pickle.dumps((self._number, name, arguments)))

    def answer(self, answer: dict[str, Any], deadline: float) -> None:
        """What the worker waits for since its last event. Raises as `ask`."""
        self._socket.settimeout(_wait(deadline, _LONGEST_S))
        self._socket.sendall(pickle.dumps((self._number, "answer", answer)))

    def event(self, deadline: float) -> dict[str, Any]:
        """The next event. Raises TimeoutError, Garbage, and EOFError or OSError when no more will come."""
        line = self._line(deadline)
        try:
            event = json.loads(line)
            ours = (event["pid"], event["request"]) == (self._process.pid, self._number)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Garbage from None
        if not ours or event.get("event") not in _EVENTS:
            raise Garbage
        return event

    def close(self) -> None:
        self._socket.close()

    def _line(self, deadline: float) -> bytes:
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            if searched > _LONGEST_LINE:
                raise Garbage
            self._unread += self._received(deadline)
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _received(self, deadline: float) -> bytes:
        while True:
            self._watch()
            self._socket.settimeout(_wait(deadline, _LOOK_S))
            try:
                if read := self._socket.recv(1 << 20):
                    return read
                raise EOFError
            except TimeoutError:
                if self._process.poll() is not None:  # a child of its holds the pipe open
                    raise EOFError from None
                if time.monotonic() >= deadline:
                    raise


def _wait(deadline: float, longest: float) -> float:
    return min(max(deadline - time.monotonic(), 0.001), longest)
