"""torch's profiler around any callable, in passes that do not disturb each other. Runs in the worker.

It is the one that torch.profiler's is made of: that one imports torch's compilers, which takes seconds.

`plain` records operators, launches and kernels and nothing else, so that its times can be used; `detail`
also records shapes, allocations and the user's lines, which slow the host down: it says where, not how long.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile, record_function

from runner.profile.lines import marked, stack_of
from runner.trace.events import WINDOW

PLAIN, DETAIL = "trace.json.gz", "trace_lines.json.gz"
_WALL_S = 0.5  # of unprofiled steps
_MOST_STEPS = 200
_LOOPS = 5


class Profiler:
    """The passes of one callable; traces go into `folder`."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device, self.folder = device, folder
        folder.mkdir(parents=True, exist_ok=True)

    def synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def plain(self, work: Callable[[], None]) -> Path:
        """`work` marks its windows with `window`."""
        with self._recorded(PLAIN):
            work()
        return self.folder / PLAIN

    def detail(self, work: Callable[[], None]) -> Path:
        with self._recorded(DETAIL, record_shapes=True, profile_memory=True):
            work()
        return self.folder / DETAIL

    @contextlib.contextmanager
    def _recorded(self, name: str, **options: Any) -> Iterator[None]:
        device = None if self.device == "cpu" else "cuda"
        self.synchronize()
        with profile(use_kineto=True, use_device=device, **options) as recorded:
            yield
            self.synchronize()  # what was launched before it ends must be in the trace
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "trace.json"
            recorded.export_chrome_trace(str(path))
            with open(path, "rb") as source, gzip.open(self.folder / name, "wb", compresslevel=3) as sink:
                shutil.copyfileobj(source, sink)

    @contextlib.contextmanager
    def window(self, name: str) -> Iterator[None]:
        """Marks what is looked at; what is issued inside belongs to it, when it runs too."""
        with record_function(WINDOW + name):
            yield

    @contextlib.contextmanager
    def lines(self, name: str) -> Iterator[None]:
        """A window in which the user's lines are marked."""
        with self.window(name), marked():
            yield


def wall(step: Callable[[], Any], synchronize: Callable[[], None], count: int = 0) -> dict[str, float]:
    """Unprofiled microseconds of a step: back to back (`step_us`), and of one alone until the host returned
    (`host_us`) and until the device was done (`end_to_end_us`). Medians. `count` steps in a row; 0 for
    five short loops."""
    host, whole = [], []
    for _ in range(5):
        synchronize()
        start = time.perf_counter_ns()
        step()
        returned = time.perf_counter_ns()
        synchronize()
        host.append((returned - start) / 1e3)
        whole.append((time.perf_counter_ns() - start) / 1e3)
    alone_us = statistics.median(whole)
    each = count or max(1, min(_MOST_STEPS, int(_WALL_S * 1e6 / _LOOPS / max(alone_us, 1.0))))
    loops = [_loop_us(step, synchronize, each) for _ in range(1 if count else _LOOPS)]
    return {
        "step_us": statistics.median(loops),
        "host_us": statistics.median(host),
        "end_to_end_us": alone_us,
        "steps_timed": len(loops) * each,
    }


def _loop_us(step: Callable[[], Any], synchronize: Callable[[], None], count: int) -> float:
    synchronize()
    start = time.perf_counter_ns()
    for _ in range(count):
        step()
    synchronize()
    return (time.perf_counter_ns() - start) / 1e3 / count


@contextlib.contextmanager
def sync_witness(device: str) -> Iterator[list[str]]:
    """The user's stacks at which torch itself says that it synchronizes: a witness beside the trace."""
    found: list[str] = []
    if device == "cpu":
        yield found
        return

    def seen(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if "synchronizing CUDA operation" in str(message):
            import sys

            found.append(stack_of(sys._getframe(1)))

    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = seen  # type: ignore[assignment]
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)
