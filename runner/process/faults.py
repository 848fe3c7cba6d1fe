"""What goes wrong in the worker, in words: a variant's faults and the op's own."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path

from runner.files import ROOT

_MOST_REASON = 500  # characters


def one_line(error: BaseException) -> str:
    """`Type: first line of the message`, not longer than a few lines of a terminal."""
    try:
        text = str(error).strip().splitlines()
    except Exception as fault:  # a class of the variant's own
        text = [f"(its message cannot be read: {type(fault).__name__})"]
    name = type(error).__name__
    line = f"{name}: {text[0]}" if text else name
    return line if len(line) <= _MOST_REASON else line[: _MOST_REASON - 3] + "..."


def log(lines: list[str]) -> None:
    """To the run's log, past `sys.stdout`, which is the variants' to close."""
    with contextlib.suppress(OSError):
        os.write(1, "".join(lines).encode("utf-8", "backslashreplace"))


def said(error: BaseException) -> str:
    """The error in one line; memory, caches and what autograd says of no gradient in words that help."""
    line = one_line(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator: " in line:
        return f"out of host memory: {line}"
    for name in _CACHES:
        if isinstance(error, OSError) and os.environ.get(name, "\0") in line:
            return f"{line}; the cache cannot be written: set {name} to a folder that can"
    if isinstance(error, RuntimeError) and any(words in line for words in _NO_GRADIENT):
        return (
            "autograd sees no way from the output to the inputs: register a gradient, or accept forward only"
        )
    return line


_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_NO_GRADIENT = ("does not require grad", "to not have been used in the graph")


def place(error: BaseException) -> str:
    """Where in the variant's own Python code it was raised, as ` (file.py:12)`; empty where it has none."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith("<")]
    runner = str(ROOT / "runner")
    own = [f for f in inside if not f.filename.startswith((runner, sys.base_prefix))]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


class Tampered(Exception):
    """A timed call changed what all variants share; whose it was is None where it may be one of several."""

    def __init__(self, index: int | None, what: str) -> None:
        super().__init__(f"right when checked, but when it was timed it changed {what}")
        self.index = index
