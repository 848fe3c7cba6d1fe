"""The process that touches variants: `python -m runner.worker <fd>`, started by `supervisor`.

It takes one pickled request at a time, announces each step before it takes it, and answers with events,
each a line of JSON with the request's number and this process's id; the last of a request is `done` or
`failed`. It outlives a run. Standard output and error belong to the variants.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import pickle
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from runner import processes
from runner.faults import one_line
from runner.model import Refusal

REQUESTS = ("hello", "open", "prove", "measure", "ceilings", "traps", "profile", "workload", "close")
_HIGHEST = 4096  # descriptors above are dear: the kernel's table grows with the number


def main(argv: list[str]) -> None:
    processes.die_with_parent()
    guard = processes.guard_session()
    faulthandler.enable()  # a segmentation fault leaves its Python stack in the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `kernels` is also a published package
    pipe = _out_of_reach(int(argv[1]))
    os.register_at_fork(after_in_child=lambda: _close(pipe, guard))
    serve(pipe)


def _out_of_reach(descriptor: int) -> int:
    """The same pipe under a high number, where loops that close descriptors rarely come. exec closes it."""
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


class _Answers:
    """Writes events to the parent, all under the number of the request that is being served."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._own, self.request = pipe, os.getpid(), 0

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


def serve(pipe: int) -> None:
    """Answer requests until the parent closes its end."""
    from runner.session import Session

    answers = _Answers(pipe)
    session = Session(answers.emit)
    requests = open(pipe, "rb")  # noqa: SIM115 - as long as this process
    while True:
        try:
            answers.request, name, arguments = pickle.load(requests)
        except EOFError:
            return
        if name not in REQUESTS:
            raise ValueError(f"unknown request {name}")
        try:
            answers.emit("done", **(getattr(session, name)(**arguments) or {}))
        except Exception as error:  # not a variant's fault (those are verdicts): said with its traceback
            traceback.print_exc()
            answers.emit("failed", reason=str(error) if isinstance(error, Refusal) else one_line(error))


if __name__ == "__main__":
    main(sys.argv)
