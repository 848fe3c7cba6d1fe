"""The child's end of the runner's pipe: requests come in, events go out, some of which wait for an answer."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import pickle
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from runner.files import ROOT
from runner.model import Refusal
from runner.process import lifetimes
from runner.process.faults import one_line

_HIGHEST = 4096  # descriptors above are dear: the kernel's table grows with the number


def prepare(descriptor: int) -> int:
    """Make this process one that ends with its parent; the pipe under its new number."""
    lifetimes.die_with_parent()
    if _hung_up(descriptor):  # the parent had ended before: nobody would be told of its end
        raise SystemExit
    guard = lifetimes.guard_session()
    faulthandler.enable()  # a segmentation fault leaves its Python stack in the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    sys.path.insert(0, str(ROOT))  # `kernels` is also a published package
    pipe = out_of_reach(descriptor)
    os.register_at_fork(after_in_child=lambda: _close(pipe, guard))
    return pipe


def _hung_up(descriptor: int) -> bool:
    """Whether the other end of the pipe is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)  # a closed end is always told
    return bool(poll.poll(0))


def out_of_reach(descriptor: int) -> int:
    """The same file under a high number, where loops that close descriptors rarely come. exec closes it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _HIGHEST if soft == resource.RLIM_INFINITY else min(soft, _HIGHEST)
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, most - 16)
    os.close(descriptor)
    return high


def _close(*descriptors: int | None) -> None:
    """In a fork: the parent and the guard must see the end of this process, not of its children."""
    for descriptor in descriptors:
        if descriptor is not None:
            with contextlib.suppress(OSError):  # the fork may have closed it itself
                os.close(descriptor)


class Answers:
    """Writes events to the parent, all under the number of the request that is being served."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._own, self.request = pipe, os.getpid(), 0
        self.requests = open(pipe, "rb")  # noqa: SIM115 - as long as this process

    def emit(self, event: str, **fields: Any) -> None:
        if os.getpid() != self._own:
            os._exit(0)  # a variant's fork came back to here, where there is nothing for it to do
        known = {"event": event, "request": self.request, "pid": self._own}
        line = json.dumps(known | fields).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._pipe, line) :]
        except OSError:
            print("a variant closed its pipe to the runner, or the runner is gone", flush=True)
            os._exit(1)

    def ask(self, event: str, **fields: Any) -> dict[str, Any]:
        """Send an event and wait for the parent's answer to it."""
        self.emit(event, **fields)
        try:
            number, name, answer = pickle.load(self.requests)
        except EOFError:
            os._exit(1)  # the runner is gone
        if (number, name) != (self.request, "answer"):
            raise RuntimeError(f"the runner sent {name} where an answer was due")
        return answer


def serve(pipe: int, session: Callable[..., Any], names: Sequence[str]) -> None:
    """Answer requests by the methods of `session(answers)` until the parent closes its end."""
    answers = Answers(pipe)
    server = session(answers)
    while True:
        try:
            answers.request, name, arguments = pickle.load(answers.requests)
        except EOFError:
            return
        if name not in names:
            raise ValueError(f"unknown request {name}")
        try:
            answers.emit("done", **(getattr(server, name)(**arguments) or {}))
        except Exception as error:  # not a variant's fault (those are verdicts): said with its traceback
            traceback.print_exc()
            answers.emit("failed", reason=str(error) if isinstance(error, Refusal) else one_line(error))
