"""What a variant does beside its output: writes next to it, keeps memory, calls the built-in."""

from __future__ import annotations

import gc
import itertools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from runner.model import Variant

_PATTERN = 0xA5
_CALLS, _MORE_CALLS = 3, 12  # after which a call that keeps memory has kept it as many times
_LEAST_KEPT = 1 << 20  # bytes of a process's memory: below, other things move it
_OWN = ("triton", "cuda", "cpp")
_STATM = Path("/proc/self/statm")


class Fence:
    """Patterned memory on both sides of a free block of each size, which an output will most likely get."""

    def __init__(self, size_bytes: Sequence[int], device: str) -> None:
        self._posts: list[torch.Tensor] = []
        for size in filter(None, size_bytes):
            before, hole, after = (
                torch.full((size,), _PATTERN, dtype=torch.uint8, device=device) for _ in range(3)
            )
            self._posts += [before, after]
            del hole

    def broken(self) -> bool:
        return any(bool((post != _PATTERN).any()) for post in self._posts)


def kept(call: Callable[[], Any], device: str) -> str:
    """What more there is after each of several calls, in words; empty unless every one of them left some.

    The process's memory grows by itself now and then: who seems to keep some is called more often.
    """
    return _grown(call, device, _CALLS) and _grown(call, device, _MORE_CALLS)


def _grown(call: Callable[[], Any], device: str, calls: int) -> str:
    found = [(_tensors(), _held(device))]
    for _ in range(calls):
        call()
        found.append((_tensors(), _held(device)))
    tensors, held = ([b - a for a, b in itertools.pairwise(numbers)] for numbers in zip(*found))
    if min(tensors) > 0:
        return f"{min(tensors)} more tensors after each call"
    least = 1 if device != "cpu" else _LEAST_KEPT
    return f"{sum(held) / calls / 1e6:.3g} MB more after each call" if min(held) >= least else ""


def _tensors() -> int:
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def _held(device: str) -> int:
    """Bytes of device memory that are allocated; on the CPU, what the process has in memory."""
    if device != "cpu":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    if not _STATM.exists():
        return 0
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def borrowed(variant: Variant, builtin: Variant | None, call: Callable[[], Any]) -> str:
    """The built-in's operator that a variant with a kernel of its own calls; empty when it calls none.

    Operators called from C++ are seen too. What allocates, views or copies is nobody's result.
    """
    if variant.language not in _OWN or builtin is None:
        return ""
    name = re.escape(builtin.target.attribute.rpartition(".")[2])
    theirs = re.compile(rf"aten::_?{name}(_forward|_out|_)?")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return next((event.name for event in profile.events() if theirs.fullmatch(event.name)), "")
