"""How an output gets from the worker to the judge: a copy in memory that both can see.

On the CPU it is shared memory. On a GPU it is the worker's device memory, opened by the judge through CUDA
IPC, or, where that is not to be had, shared host memory. Only numbers go through the parent: nothing that the
worker says is ever unpickled.
"""

from __future__ import annotations

import base64
import itertools
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.check import poison
from runner.model import IPC
from runner.process.serving import out_of_reach

_ALIGNMENT = 512  # bytes, of each output's copy
_serials = itertools.count(1)


@dataclass(frozen=True)
class Part:
    """One output: what it must be. `shape` and `dtype` are the judge's, not the variant's."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _places(parts: Sequence[Part]) -> tuple[list[slice], int]:
    """Where each output lies in the memory, in bytes, and how much that is together."""
    places, end = [], 0
    for part in parts:
        size = torch.Size(part.shape).numel() * part.dtype.itemsize
        places.append(slice(end, end + size))
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return places, max(end, _ALIGNMENT)


def _views(memory: torch.Tensor, parts: Sequence[Part]) -> list[torch.Tensor]:
    places, _ = _places(parts)
    return [memory[place].view(part.dtype).view(part.shape) for place, part in zip(places, parts)]


class Outbox:
    """The worker's end: copies of one call's outputs, and where the judge finds them."""

    def __init__(self, device: str, way: str, parts: Sequence[Part]) -> None:
        _, size = _places(parts)
        self._way, self._serial = way, next(_serials)
        self._file, memory = (None, _device_memory(size, device)) if way == IPC else _host_memory(size)
        self._memory = memory
        self._told = {"ipc": _handle(memory)} if way == IPC else {"file": self._file, "bytes": size}
        self._copies = _views(memory, parts)

    def put(self, outputs: Sequence[torch.Tensor]) -> None:
        """Copy in stream order: work that the call left to another stream or thread is not waited for."""
        for copy, output in zip(self._copies, outputs, strict=True):
            copy.copy_(output, non_blocking=True)

    def wipe(self) -> None:
        """Once it is judged: no other variant is to find a right answer here."""
        self._memory.fill_(poison.BYTE)

    def differs(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Whether the outputs are no longer, bit for bit, what was put."""
        return not all(map(same_bits, outputs, self._copies))

    @property
    def place(self) -> dict[str, Any]:
        """For `Inbox.open`: plain JSON values."""
        return {"serial": self._serial, **self._told}

    def close(self) -> None:
        if isinstance(self._file, int):
            os.close(self._file)
        elif self._file:
            os.unlink(self._file)
        self._file = None


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal shapes, dtypes and bits; NaN equals the same NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_floating_point() and a.dtype.itemsize > 1:
        words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.dtype.itemsize]
        a, b = a.detach().contiguous().view(words), b.detach().contiguous().view(words)
    return torch.equal(a, b.to(a.device))


class Unreadable(Exception):
    """The worker no longer holds the file that it said its copies are in."""


class Inbox:
    """The judge's end: the memory that a worker said its copies are in."""

    def __init__(self, device: str) -> None:
        self._device, self._known, self._memory = device, None, None

    def read(self, worker: int, place: dict[str, Any], parts: Sequence[Part]) -> list[torch.Tensor]:
        """The copies, on the judge's device. Raises Unreadable, OSError or RuntimeError where that fails."""
        key = (worker, place["serial"])
        if key != self._known:
            self.close()
            self._memory = _opened(worker, place)
            self._known = key
        _, size = _places(parts)
        if self._memory.numel() < size:
            raise RuntimeError("the worker's copy is smaller than the output")
        return [view.to(self._device) for view in _views(self._memory, parts)]

    def close(self) -> None:
        self._known = self._memory = None


def _device_memory(size: int, device: str) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _host_memory(size: int) -> tuple[int | str, torch.Tensor]:
    """A descriptor (a path where the system has no memory files) and its bytes."""
    if hasattr(os, "memfd_create"):
        file: int | str = out_of_reach(os.memfd_create("outputs"))
    else:
        opened, file = tempfile.mkstemp(prefix="runner-outputs-")
        os.close(opened)
    os.truncate(file, size)
    return file, _mapped(file, size)


def _mapped(file: int | str, size: int) -> torch.Tensor:
    """The bytes of a file, shared; no descriptor of it stays open here."""
    path = file if isinstance(file, str) else f"/proc/self/fd/{file}"
    return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)


def _handle(memory: torch.Tensor) -> list[Any]:
    """What CUDA and torch need to open this memory elsewhere, as JSON."""
    parts = memory.untyped_storage()._share_cuda_()
    return [{"bytes": base64.b64encode(p).decode()} if isinstance(p, bytes) else p for p in parts]


def _opened(worker: int, place: dict[str, Any]) -> torch.Tensor:
    if "ipc" in place:
        torch.cuda.init()  # the next but one dies without
        parts = [base64.b64decode(p["bytes"]) if isinstance(p, dict) else p for p in place["ipc"]]
        storage = torch.UntypedStorage._new_shared_cuda(*parts)
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    file = place["file"]
    path = f"/proc/{worker}/fd/{file}" if isinstance(file, int) else file
    try:
        if os.stat(path).st_size == place["bytes"]:
            return _mapped(path, place["bytes"])
    except FileNotFoundError:
        pass
    raise Unreadable("closed the file that its outputs are read from")
