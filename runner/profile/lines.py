"""Marks each line of the user's Python in a trace: an annotation `@file:line function > ..` around it.

What is issued under a line, the operators, the launches, the synchronizes, then has the line's place on
the trace's own clock. It costs the host far more than the code it marks: a pass of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from torch.autograd.profiler import record_function

from runner.files import ROOT
from runner.trace.events import LINE

_OWN = str(ROOT / "runner") + os.sep
_LIBRARIES = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_PACKAGES = ("site-packages", "dist-packages")
_GENERATED = "torchinductor"  # the folder of what torch.compile writes
_DEEPEST = 12  # frames in a mark
_known: dict[str, bool] = {}


def is_users(path: str) -> bool:
    """Whether a file is neither Python's, nor an installed package's, nor the runner's."""
    if path not in _known:
        real = os.path.realpath(path)
        foreign = path.startswith("<") or real.startswith((*_LIBRARIES, _OWN))
        parts = Path(real).parts
        _known[path] = not foreign and not any(name in _PACKAGES or _GENERATED in name for name in parts)
    return _known[path]


def stack_of(frame: FrameType | None) -> str:
    """The user's frames from the outermost in, as `file:line function > file:line function`."""
    frames: list[str] = []
    while frame is not None and len(frames) < _DEEPEST:
        code = frame.f_code
        if is_users(code.co_filename):
            frames.append(f"{_short(code.co_filename)}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(frames))


def _short(path: str) -> str:
    """From where the user stands, when the file lies below."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Inside, every line of the user's code that this thread runs is marked."""
    marks = _Marks()
    before = sys.gettrace()
    sys.settrace(marks.enter)
    try:
        yield
    finally:
        sys.settrace(before)
        marks.close()


class _Marks:
    """One open annotation a frame, replaced at each line."""

    def __init__(self) -> None:
        self._open: dict[FrameType, record_function] = {}

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.line if is_users(frame.f_code.co_filename) else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            self._end(frame)
        if event == "line":
            mark = self._open[frame] = record_function(LINE + stack_of(frame))
            mark.__enter__()
        return self.line

    def _end(self, frame: FrameType) -> None:
        mark = self._open.pop(frame, None)
        if mark is not None:
            mark.__exit__(None, None, None)

    def close(self) -> None:
        for frame in reversed(list(self._open)):
            self._end(frame)
