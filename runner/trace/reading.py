"""A Kineto trace (the Chrome format that torch.profiler writes) read into plain events. No torch.

The runner's own marks are annotations: `runner: <window>` around what is looked at, `@<stack>` around each
line of the user's Python (see `profile/lines.py`).
"""

from __future__ import annotations

import gzip
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.trace.events import LINE, WINDOW, Activity, Call, Line, Op, Trace

_LIST = "TensorList"
_ON_DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_RUNTIME = ("cuda_runtime", "cuda_driver")
_BACKWARD = "autograd::engine::evaluate_function: "
_OPTIMIZER = ("Optimizer.step#", "Optimizer.zero_grad#")
_LOADER = "enumerate(DataLoader)#"
ITEMSIZES = {  # bytes, by the names that the profiler gives to dtypes
    **dict.fromkeys(("bool", "unsigned char", "signed char", "c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "long int", "c10::complex<float>"), 8),
    "c10::complex<double>": 16,
}


def load(path: Path) -> dict[str, Any]:
    """The JSON of a trace file, gzipped or not."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def read(raw: Mapping[str, Any]) -> Trace:
    """A trace from its JSON. Events of kinds that are not known here are left out."""
    events = [each for each in raw["traceEvents"] if each.get("ph") in ("X", "i")]
    trace = Trace()
    for each in events:
        if each.get("cat") == "user_annotation" and each["name"].startswith(WINDOW):
            trace.windows[each["name"].removeprefix(WINDOW)] = _span(each)
    host = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation", *_RUNTIME) and e["ph"] == "X"]
    for thread in {each.get("tid") for each in host}:
        _thread([each for each in host if each.get("tid") == thread], trace)
    trace.ops.sort(key=lambda op: op.start)
    trace.calls.sort(key=lambda call: call.start)
    _size_lists(trace.ops)
    _link_backward(trace.ops)
    _allocations(events, trace.ops)
    _device(events, trace)
    return trace


def _span(event: Mapping[str, Any]) -> tuple[float, float]:
    start = float(event["ts"])
    return start, start + float(event.get("dur", 0))


def _thread(events: Sequence[Mapping[str, Any]], trace: Trace) -> None:
    """Nests one thread's events by time; of two that begin together the longer is the parent."""
    ordered = sorted(events, key=lambda each: (_span(each)[0], -_span(each)[1]))
    stack: list[tuple[float, Op | None, str]] = []  # (end, the operator or None, an annotation's name)
    for event in ordered:
        start, end = _span(event)
        while stack and start >= stack[-1][0]:
            stack.pop()
        made = _made(event, start, end, stack, trace)
        stack.append((end, made, event["name"] if made is None else ""))


def _made(event: Mapping[str, Any], start: float, end: float, stack: list, trace: Trace) -> Op | None:
    """The operator of an event; None for an annotation or a runtime call (which is kept all the same)."""
    if event["cat"] == "user_annotation":
        if event["name"].startswith(LINE):
            trace.lines.append(Line(event["name"][1:], start, end, _window(start, end, trace.windows)))
        if event["name"].startswith(_LOADER):
            label = _label([name for _, op, name in stack if op is None])
            trace.loads.append(Line(label, start, end, _window(start, end, trace.windows)))
        return None
    parent = next((op for _, op, _ in reversed(stack) if op), None)
    marks = [name for _, op, name in stack if op is None]
    common = {
        "label": _label(marks),
        "phase": _phase(marks),
        "window": _window(start, end, trace.windows),
    }
    if event["cat"] in _RUNTIME:
        if parent:
            parent.launched += 1
        correlation = event.get("args", {}).get("correlation")
        call = Call(event["name"], start, end, event.get("tid"), correlation, parent, **common)
        trace.calls.append(call)
        return None
    op = _op(event, start, end, parent, common)
    if parent:
        parent.children_us += end - start
        op.node = parent if parent.name.startswith(_BACKWARD) else parent.node
    trace.ops.append(op)
    return op


def _label(marks: Sequence[str]) -> str:
    """The user's stack of the innermost line."""
    return next((name[1:] for name in reversed(marks) if name.startswith(LINE)), "")


def _op(event: Mapping[str, Any], start: float, end: float, parent: Op | None, common: dict) -> Op:
    args = event.get("args", {})
    tensors: list[tuple[int, int]] = []
    shapes, dtypes, first = [], [], 0
    dims, types = args.get("Input Dims", ()), args.get("Input type", ())
    for shape, kind, stride in zip(dims, types, args.get("Input Strides", [()] * len(dims))):
        several = kind == _LIST
        for own, steps in zip(shape, stride) if several else [(shape, stride)]:
            if several or kind in ITEMSIZES:
                tensors.append((_distinct(own, steps), ITEMSIZES.get(kind, 0)))
                shapes.append(tuple(own))
                dtypes.append(kind)
        first = first or len(tensors)
    name, thread, sequence = event["name"], event.get("tid"), args.get("Sequence number")
    values = (name, start, end, thread, parent, sequence, tuple(tensors), tuple(shapes), tuple(dtypes), first)
    return Op(*values, fills_last="kernel_backend" in args, **common)


def _distinct(shape: Sequence[int], stride: Sequence[int]) -> int:
    known = len(stride) == len(shape)
    return math.prod(n for n, step in zip(shape, stride if known else shape) if step or not known)


def _size_lists(ops: Sequence[Op]) -> None:
    """Of a list of tensors no dtype is recorded: it counts as the commonest of the trace."""
    sizes = Counter(size for op in ops for count, size in op.tensors if size and count > 1)
    usual = sizes.most_common(1)[0][0] if sizes else 4
    for op in ops:
        op.tensors = tuple((count, size or usual) for count, size in op.tensors)


def _phase(marks: Sequence[str]) -> str:
    for name in marks:
        if name.startswith(_OPTIMIZER):
            return "optimizer"
        if name.startswith(_LOADER):
            return "data"
    return "forward"


def _window(start: float, end: float, windows: Mapping[str, tuple[float, float]]) -> str:
    """By time: other threads (that of autograd) work while the window's own thread waits for them."""
    return next((name for name, (low, high) in windows.items() if low <= start and end <= high), "")


def _link_backward(ops: Sequence[Op]) -> None:
    """What an autograd node runs belongs to the forward operator that made the node: the last before it with
    its number, and of those that share it the outermost."""
    made: dict[int, Op] = {}
    for op in ops:
        if op.name.startswith(_BACKWARD):
            op.node = op
            op.forward = made.get(op.sequence) if op.sequence is not None else None
        if op.node:
            op.phase, op.label = "backward", op.node.forward.label if op.node.forward else ""
        elif op.sequence is not None and not _inside(op, made.get(op.sequence)):
            made[op.sequence] = op


def _inside(op: Op, other: Op | None) -> bool:
    return other is not None and other.thread == op.thread and op.end <= other.end


def _allocations(events: Iterable[Mapping[str, Any]], ops: Sequence[Op]) -> None:
    """Bytes allocated go to the innermost operator at that time, and to those around it."""
    threads: dict[Any, list[Op]] = {}
    for op in ops:
        threads.setdefault(op.thread, []).append(op)
    starts = {thread: [op.start for op in own] for thread, own in threads.items()}
    for event in events:
        size, thread = event.get("args", {}).get("Bytes", 0), event.get("tid")
        if event["name"] != "[memory]" or size <= 0 or thread not in threads:
            continue
        at = float(event["ts"])
        last = bisect_right(starts[thread], at) - 1
        op = threads[thread][last] if last >= 0 else None
        while op:  # the last to begin is inside of all that are still open
            op.allocated += size if op.end >= at else 0
            op = op.parent


def _device(events: Iterable[Mapping[str, Any]], trace: Trace) -> None:
    launches = {call.correlation: call for call in trace.calls if call.correlation}
    for event in events:
        kind = _ON_DEVICE.get(event.get("cat", ""))
        if kind is None:
            continue
        args = event.get("args", {})
        start, end = _span(event)
        correlation = args.get("correlation")
        launch = launches.get(correlation)
        trace.dropped += launch is None
        made = Activity(kind, event["name"], start, end, args.get("stream"), correlation, args, launch)
        if launch and launch.op:  # the launch of a node's operator is the backward's
            launch.phase, launch.label = launch.op.phase, launch.op.label or launch.label
        trace.activities.append(made)
    trace.activities.sort(key=lambda each: each.start)
