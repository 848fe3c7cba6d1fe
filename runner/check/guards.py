"""What a variant does beside its output: writes next to it, keeps memory, calls the built-in."""

from __future__ import annotations

import ctypes
import gc
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

# What torch.profiler's is made of: that one imports torch's compilers.
from torch.autograd.profiler import profile

from runner.check import poison
from runner.model import Target, Variant

_PATTERN = 0xA5
_GRAIN = 512  # bytes: what torch's allocator for GPUs rounds a block's size up to
_MOST_BLOCKS = 130  # more than may lie free of one size when they were poisoned
_CALLS, _MORE_CALLS = 3, 12  # after which a call that keeps memory has kept it as many times
_LEAST_KEPT = 1 << 16  # bytes of a process's heap: below, other things move it
_MALLINFO = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
_OWN = ("triton", "cuda", "cpp")


_LEFT: list[Any] = []


class Fence:
    """Patterned memory on both sides of a free block of each size, which an output will most likely get.

    On a GPU blocks are of the size that torch's allocator rounds to, so that the one behind begins where the
    free one ends; what lies between an output's end and its block's is nobody's, and not seen.
    """

    def __init__(self, size_bytes: Sequence[int], device: str) -> None:
        self._posts: list[torch.Tensor] = []
        for size in filter(None, size_bytes):
            make = _posts if device == "cpu" else _adjoining
            self._posts += make(size, device)

    def broken(self) -> bool:
        return any(bool((post != _PATTERN).any()) for post in self._posts)

    def leave(self, output: Any) -> None:
        """Never give this memory back: what was written over may be what the allocator lives by."""
        _LEFT.append((self, output))


def _posts(size: int, device: str) -> list[torch.Tensor]:
    before, hole, after = (_patterned(size, device) for _ in range(3))
    hole.fill_(poison.BYTE)  # no right value for a call that leaves it as it is
    del hole
    return [before, after]


def _adjoining(size: int, device: str) -> list[torch.Tensor]:
    """Blocks of torch's allocator: all that were free for the size, but the one before the last.

    They are taken until two of them adjoin, so that an output has nowhere else to go than between them.
    """
    size = -(-size // _GRAIN) * _GRAIN
    torch.empty(3 * size, dtype=torch.uint8, device=device)  # given back at once: room for neighbours
    blocks: dict[int, torch.Tensor] = {}
    for _ in range(_MOST_BLOCKS):
        block = _patterned(size, device)
        at = block.data_ptr()
        blocks[at] = block
        if at + size in blocks or at - size in blocks:
            blocks.pop(at if at + size in blocks else at - size).fill_(poison.BYTE)
            break
    return list(blocks.values())


def _patterned(size: int, device: str) -> torch.Tensor:
    return torch.full((size,), _PATTERN, dtype=torch.uint8, device=device)


def kept(call: Callable[[], Any], device: str) -> str:
    """What more there is after each of several calls, in words; empty unless every one of them left some.

    A process's memory may grow by itself for a while: who seems to keep some is called more often.
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
    """Of the objects that the garbage collector follows; in C, for there may be hundreds of thousands."""
    return sum(map(issubclass, map(type, gc.get_objects()), itertools.repeat(torch.Tensor)))


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO]


def _held(device: str) -> int:
    """Bytes that are allocated: of device memory, or of glibc's heap (0 where there is no glibc)."""
    if device != "cpu":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Heap
    heap = mallinfo2()
    return heap.uordblks + heap.hblkhd


def borrowed(variant: Variant, theirs: Sequence[Target], call: Callable[[], Any]) -> str:
    """The operator of the built-in's, or of the definition's, that a variant with a kernel of its own calls.

    Empty when it calls none. Operators called from C++ are seen too. What allocates, views or copies is
    nobody's result.
    """
    names = [one.attribute.rpartition(".")[2] for one in theirs if one.module.split(".")[0] == "torch"]
    if variant.language not in _OWN or not names:
        return ""
    forbidden = re.compile(rf"aten::_?({'|'.join(map(re.escape, names))})(_forward|_out|_)?")
    with profile(use_kineto=True) as recorded:
        call()
    return next((event.name for event in recorded.function_events if forbidden.fullmatch(event.name)), "")
