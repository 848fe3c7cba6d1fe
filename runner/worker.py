"""The process that touches variants: `python -m runner.worker <fd>`, started by `supervisor`.

It takes one request at a time, announces each step before it takes it, and answers with events as
JSON, the last of a request being `done` or `failed`. It outlives a run. Standard output and error
belong to the variants.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runner.model import Refusal

REQUESTS = ("hello", "open", "prove", "measure", "ceilings", "traps", "close")


def main(argv: list[str]) -> None:
    _die_with_parent()
    faulthandler.enable()  # a segmentation fault leaves its Python stack in the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `kernels` is also a published package
    serve(Connection(int(argv[1])))


def _die_with_parent() -> None:
    """Linux: a killed parent takes its worker along (PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def serve(pipe: Connection) -> None:
    """Answer requests until the parent closes its end."""

    def emit(event: str, **fields: Any) -> None:
        pipe.send_bytes(json.dumps({"event": event, **fields}).encode())

    from runner.session import Session

    session = Session(emit)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        if name not in REQUESTS:
            raise ValueError(f"unknown request {name}")
        try:
            emit("done", **(getattr(session, name)(**arguments) or {}))
        except Exception as error:  # not a variant's fault (those are verdicts): said with its traceback
            traceback.print_exc()
            emit("failed", reason=str(error) if isinstance(error, Refusal) else one_line(error))


def one_line(error: BaseException) -> str:
    """`Type: first line of the message`."""
    text = str(error).strip().splitlines()
    name = type(error).__name__
    return f"{name}: {text[0]}" if text else name


if __name__ == "__main__":
    main(sys.argv)
