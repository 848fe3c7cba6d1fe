"""The units of a step grouped into operations that a person would name, with what they must move. Pure.

One function of the user's that only computes (a GeLU, an attention) is one operation, forward and backward
together. In a function that also applies layers with weights each line is looked at by itself: an operator of
torch is an operation, and elementwise operators that follow each other are one chain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.trace.costs import FUSED_ATTENTION, PRODUCTS, flops, is_product, least
from runner.trace.events import Op
from runner.trace.operators import NO_WORK, Unit, is_compiled, works

_LAYERS = re.compile(r"linear|addmm|conv|embedding|layer_norm|batch_norm|group_norm|rms_norm|lstm|gru")
_ELEMENTWISE = re.compile(
    r"::_?(add|sub|rsub|mul|div|neg|abs|exp|exp2|log|log2|pow|sqrt|rsqrt|square|tanh|erf|sigmoid|relu|silu|gelu|where|"
    r"clamp|clamp_min|maximum|minimum|to|to_copy|copy|sum|mean|amax|amin|max|min|var|std|softmax|log_softmax|"
    r"masked_fill|reciprocal|sin|cos|type_as|float|half|bfloat16)_?$"
)
_COLLECTIVE = re.compile(r"nccl|c10d::|all_?reduce|all_?gather|reduce_?scatter", re.IGNORECASE)
_CHAIN = "elementwise in "


@dataclass(eq=False)
class Instance:
    """Units of one operation that ran one after another: one call of it, forward or backward."""

    units: list[Unit] = field(default_factory=list)

    @property
    def backward(self) -> bool:
        return self.units[0].phase == "backward"

    @property
    def us(self) -> float:
        return sum(unit.us for unit in self.units)

    @property
    def ops(self) -> list[Op]:
        """The operators that do its work, each once, in order."""
        return [op for op in {id(u.op): u.op for u in self.units if u.op}.values() if works(op)]


@dataclass(eq=False)
class Operation:
    """`name` and `where` (file:line or file and function) tell it; `kind` is one of KINDS."""

    name: str
    where: str
    kind: str
    instances: list[Instance] = field(default_factory=list)

    @property
    def us(self) -> float:
        return sum(one.us for one in self.instances)

    def phase_us(self, phase: str) -> float:
        return sum(unit.us for one in self.instances for unit in one.units if unit.phase == phase)

    @property
    def kernels(self) -> int:
        return sum(unit.activity is not None for one in self.instances for unit in one.units)

    @property
    def operators(self) -> set[str]:
        """Names without namespace, of what its forward called: a mean is neither a sum nor a division."""
        units = [u for one in self.instances for u in one.units if u.phase != "backward"]
        ops = [u.top or u.op for u in units if u.top or u.op]
        return {op.name.partition("::")[2].strip("_") for op in ops}

    @property
    def flops(self) -> float:
        return sum(flops(op) for one in self.instances for op in one.ops)

    @property
    def products(self) -> float:
        """Those of matrix products alone."""
        return sum(flops(op) for one in self.instances for op in one.ops if is_product(op))

    @property
    def moved_bytes(self) -> float:
        return sum(op.read_bytes + op.written_bytes for one in self.instances for op in one.ops)

    def least(self) -> list[tuple[float, float, float]]:
        """(bytes read, bytes written, flops) of each instance, if nothing in between went to memory."""
        first = next((one.ops[0] for one in self.instances if not one.backward and one.ops), None)
        return [least(one.ops, one.backward, self.kind, first) for one in self.instances if one.ops]


KINDS = (
    "product",
    "attention",
    "chain",
    "layer",
    "optimizer",
    "copy",
    "communication",
    "compiled",
    "loader",
    "view",
    "other",
)


def loader(label: str, us: float) -> Unit:
    """The wait for a DataLoader's next batch, as a unit; on a GPU it is no time of the device's, and 0."""
    return Unit("DataLoader", us, None, None, "data", label)


def grouped(units: Sequence[Unit]) -> list[Operation]:
    """The operations of a step, the largest first; every unit is in exactly one."""
    functions = _functions(units)
    found: dict[tuple[str, str], Operation] = {}
    last: tuple | None = None
    chains = _Chains()
    for unit in units:
        name, where, kind = _identity(unit, functions, chains)
        operation = found.setdefault((name, where), Operation(name, where, kind))
        key = (name, where, unit.phase)
        if key != last:
            operation.instances.append(Instance())
        operation.instances[-1].units.append(unit)
        last = key
    for operation in found.values():
        operation.name = _sole(operation) or operation.name
    return sorted(found.values(), key=lambda each: -each.us)


def _sole(operation: Operation) -> str:
    """A chain of one operator is called after it."""
    names = {_short(unit) for one in operation.instances for unit in one.units if unit.top}
    chain = operation.kind == "chain" and operation.name.startswith(_CHAIN)
    return names.pop() if chain and len(names) == 1 else ""


def _frames(label: str) -> list[tuple[str, str, str]]:
    """(file, line, function) from the outermost in."""
    found = []
    for text in filter(None, label.split(" > ")):
        place, _, function = text.partition(" ")
        file, _, line = place.rpartition(":")
        found.append((file, line, function))
    return found


def _functions(units: Iterable[Unit]) -> Mapping[tuple[str, str], set[str]]:
    """By (file, function): the operators that its lines call; `(calls)` where it calls more of the user's."""
    found: dict[tuple[str, str], set[str]] = {}
    for unit in units:
        frames = _frames(unit.label)
        for file, _, function in frames[:-1]:
            found.setdefault((file, function), set()).add("(calls)")
        if frames and unit.top:
            file, _, function = frames[-1]
            found.setdefault((file, function), set()).add(unit.top.name)
    return found


def _identity(unit: Unit, functions: Mapping, chains: _Chains) -> tuple[str, str, str]:
    """(name, where, kind) of the operation that a unit belongs to."""
    kind = _kind(unit)
    if unit.phase == "data":
        return "DataLoader", _line(unit), "loader"
    if unit.phase == "optimizer":
        return "optimizer", _line(unit), "optimizer"
    if kind in ("communication", "copy"):
        return unit.name.partition("(")[0].strip(), _line(unit), kind
    frames = _frames(unit.label)
    if len(frames) > 1 and _computes_only(functions.get(frames[-1][::2], set())):
        file, _, function = frames[-1]
        own = functions[(file, function)]
        whole = "attention" if sum(bool(PRODUCTS.search(name)) for name in own) else "chain"
        return function, file, whole
    if kind == "chain":
        return chains.of(unit)
    if kind == "view":
        return "views and allocations", "", kind
    chains.broken()
    return _short(unit), _line(unit), kind


def _computes_only(own: set[str]) -> bool:
    """A function without layers, and with no other of the user's below; one operator is named itself."""
    return len(own) > 1 and "(calls)" not in own and not any(_LAYERS.search(name) for name in own)


class _Chains:
    """Elementwise operators of one function that follow each other are one operation, at their first line."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[str, str, str]] = {}  # (label, operator) -> operation
        self._open: tuple[str, str] | None = None  # (file and function, line where it began)

    def of(self, unit: Unit) -> tuple[str, str, str]:
        name = unit.top.name if unit.top else unit.name
        key = (unit.label, name)
        frames = _frames(unit.label)
        if key not in self._known:
            function = "/".join(frames[-1][::2]) if frames else ""
            if self._open is None or self._open[0] != function or unit.phase == "backward":
                self._open = (function, _line(unit))
            words = _short(unit)
            self._known[key] = (
                words if not frames else f"{_CHAIN}{frames[-1][2]}",
                self._open[1],
                "chain",
            )
        return self._known[key]

    def broken(self) -> None:
        self._open = None


def _kind(unit: Unit) -> str:
    if _COLLECTIVE.search(unit.name) or (unit.op and _COLLECTIVE.search(unit.op.name)):
        return "communication"
    if unit.activity is not None and unit.activity.kind == "memcpy" and "DtoD" not in unit.name:
        return "copy"
    top = unit.top or unit.op
    if top is None:
        return "other"
    if is_compiled(top) or top.name.startswith("triton_"):
        return "compiled"
    if FUSED_ATTENTION.search(top.name):
        return "attention"
    if top.name in NO_WORK and not (unit.op and works(unit.op)):
        return "view"
    if PRODUCTS.search(top.name) or (unit.op and PRODUCTS.search(unit.op.name)):
        return "product"
    if _LAYERS.search(top.name):
        return "layer"
    return "chain" if _ELEMENTWISE.search(top.name) else "other"


def _short(unit: Unit) -> str:
    name = unit.top.name if unit.top else unit.op.name if unit.op else unit.name
    return name.removeprefix("autograd::engine::evaluate_function: ").partition("::")[2] or name


def _line(unit: Unit) -> str:
    frames = _frames(unit.label)
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""


def split(operations: Iterable[Operation], phases: Sequence[str]) -> dict[str, float]:
    """Microseconds of a step by phase."""
    some = list(operations)
    return {phase: sum(each.phase_us(phase) for each in some) for phase in phases}


def limit_us(operation: Operation, time_of: Callable[[float, float, float, str], Any]) -> tuple[float, str]:
    """The least time of all its instances, and what sets most of it.

    `time_of(read, write, flops, dtype)` gives (microseconds, memory | compute).
    """
    if operation.kind == "loader":
        return 0.0, ""  # it could as well be done beforehand
    by: dict[str, float] = {}
    dtype = _dtype(operation)
    for read, written, count in operation.least():
        us, bound = time_of(read, written, count, dtype if operation.products else "")
        by[bound] = by.get(bound, 0.0) + us
    return sum(by.values()), max(by, key=by.__getitem__, default="")


def _dtype(operation: Operation) -> str:
    """Of the first matrix product's first argument."""
    ops = (op for one in operation.instances for op in one.ops if is_product(op) and op.dtypes)
    return next((op.dtypes[0] for op in ops), "")
