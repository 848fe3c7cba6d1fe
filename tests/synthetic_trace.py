"""Traces made by hand, in the form that torch.profiler writes: for tests that know the answer beforehand."""

from __future__ import annotations

from typing import Any

from runner.trace.events import LINE, WINDOW, Trace
from runner.trace.reading import read


class Made:
    """Events with times in microseconds. `host` of a kernel: (start, duration) of its launch."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def add(self, cat: str, name: str, start: float, us: float, tid: int = 1, **args: Any) -> Made:
        event = {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": us, "tid": tid, "args": args}
        self.events.append(event)
        return self

    def window(self, name: str, start: float, us: float) -> Made:
        return self.add("user_annotation", WINDOW + name, start, us)

    def line(self, stack: str, start: float, us: float) -> Made:
        return self.add("user_annotation", LINE + stack, start, us)

    def mark(self, name: str, start: float, us: float) -> Made:
        return self.add("user_annotation", name, start, us)

    def op(self, name: str, start: float, us: float, shapes=(), dtype="float", sequence=None, tid=1) -> Made:
        args = {"Input Dims": [list(s) for s in shapes], "Input type": [dtype] * len(shapes)}
        args |= {"Sequence number": sequence} if sequence is not None else {}
        return self.add("cpu_op", name, start, us, tid, **args)

    def call(self, name: str, start: float, us: float, tid: int = 1, **args: Any) -> Made:
        return self.add("cuda_runtime", name, start, us, tid, **args)

    def kernel(
        self, name: str, start: float, us: float, host: tuple[float, float], tid=1, kind="kernel"
    ) -> Made:
        self._correlation += 1
        api = "cudaLaunchKernel" if kind == "kernel" else "cudaMemcpyAsync"
        self.call(api, *host, tid, correlation=self._correlation)
        args = {"correlation": self._correlation, "stream": 7, "grid": [8, 1, 1], "block": [128, 1, 1]}
        return self.add(kind, name, start, us, tid=7, **args)

    def memory(self, size: int, at: float, tid: int = 1) -> Made:
        event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at, "tid": tid}
        self.events.append(event | {"args": {"Bytes": size}})
        return self

    def trace(self) -> Trace:
        return read({"traceEvents": self.events})
