"""Memory that a call allocates and does not write holds no right value."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence

import torch

BYTE = 0xFF  # all of them: NaN in every dtype of floating point
_MOST_POISONED = 64  # blocks of one size: small ones share a segment that is never used up
_M_PERTURB = -6  # malloc.h
_SMALL_BLOCK = 2048  # bytes; glibc's per-thread lists end at 1032
_MOST_HEAP = 32 << 20  # bytes; glibc maps larger blocks anew, and they hold zeros


@contextlib.contextmanager
def poisoned(size_bytes: Sequence[int], device: str) -> Iterator[None]:
    """Around a call: memory that it allocates and does not write holds no right value.

    On a GPU the allocator's free blocks that would serve these sizes are filled with NaN. On the
    CPU glibc fills what it hands out and takes back (`mallopt`, M_PERTURB); elsewhere it is left.
    """
    if device != "cpu":
        _fill_free_blocks(size_bytes, device)
        yield
        return
    perturb = getattr(ctypes.CDLL(None), "mallopt", None) or (lambda parameter, value: 0)
    small = [size for size in size_bytes if size <= _SMALL_BLOCK]
    _fill(small, 16)  # these wait in a list of their own, which is handed out as it is
    perturb(_M_PERTURB, 1)  # new memory reads 0xFE: -1.7e38 in float32 and bfloat16, NaN in float16
    try:
        yield
    finally:
        perturb(_M_PERTURB, 0)


def lightly(size_bytes: Sequence[int], device: str) -> None:
    """Before a timed call: the block that its output will most likely get holds no right value."""
    if device == "cpu":
        _fill([size for size in size_bytes if size <= _SMALL_BLOCK], 16)
        _fill([size for size in size_bytes if _SMALL_BLOCK < size <= _MOST_HEAP], 1)
    else:
        for size in size_bytes:
            torch.full((max(size, 1),), BYTE, dtype=torch.uint8, device=device)


def comes_again(size_bytes: int, device: str) -> bool:
    """Whether memory that is let go may be handed out again with what it holds."""
    return device != "cpu" or size_bytes <= _MOST_HEAP


def _fill(size_bytes: Sequence[int], count: int) -> None:
    """Write `count` blocks of each size on the CPU and give them back."""
    for size in size_bytes:
        held = [torch.full((max(size, 1),), BYTE, dtype=torch.uint8) for _ in range(count)]
        del held


def _fill_free_blocks(size_bytes: Sequence[int], device: str) -> None:
    """A block is free for a size while allocating it does not make the allocator ask for more."""
    held: list[torch.Tensor] = []
    for size in size_bytes:
        for _ in range(_MOST_POISONED):
            before = torch.cuda.memory_reserved(device)
            held.append(torch.full((max(size, 1),), BYTE, dtype=torch.uint8, device=device))
            if torch.cuda.memory_reserved(device) > before:
                break
