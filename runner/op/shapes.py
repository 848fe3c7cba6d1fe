"""Shapes of a run: the ones that are declared or given, `shape.<dim>=` put in, left-out dims filled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runner.model import Op, Refusal
from runner.op import formula
from runner.typed import nearest

Shape = dict[str, int]
BIGGEST = 2**63


def chosen(raw: dict[str, Any], op: Op, device: str, wrong: list[str]) -> tuple[Shape, ...]:
    """The run's shapes, each once and every dim with a size; what is wrong is added to `wrong`.

    When `shape.<dim>=` gives every dim that has no default, it is the one shape.
    """
    overrides = dict(_overrides(raw["shape"], op, wrong))
    free = [dim for dim in op.dims if dim not in op.dim_defaults]
    alone = overrides and all(dim in overrides for dim in free) and raw["shapes"] is None
    made: list[Shape] = []
    for where, base in [("shape", {})] if alone else _bases(raw, op, device, wrong):
        entry = {**base, **overrides}
        try:
            wrong += (found := faults(raw["op"], entry, where))
            if not found and (shape := complete(op.dims, op.dim_defaults, entry)) not in made:
                made.append(shape)
        except Refusal as refusal:
            wrong.append(f"{where}: {refusal}")
    return tuple(made)


def _overrides(asked: dict[str, Any], op: Op, wrong: list[str]) -> Iterable[tuple[str, int]]:
    for dim, size in asked.items():
        where = f"shape.{dim}={size}"
        if dim not in op.dims:
            wrong.append(f"{where}: op {op.name} has no dim {dim!r}{nearest(dim, op.dims)}")
        elif isinstance(size, list):
            sizes = ",".join(map(str, size))
            wrong.append(f"{where}: a run has one size for a dim; sweep with -m shape.{dim}={sizes}")
        elif size_fault(size):
            wrong.append(f"{where}: {size_fault(size)}")
        else:
            yield dim, size


def _bases(raw: dict[str, Any], op: Op, device: str, wrong: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """(place, shape as it was written) of each."""
    sets = raw["op"]["shapes"]
    asked = device.partition(":")[0] if raw["shapes"] is None else raw["shapes"]
    if isinstance(asked, list):
        if not asked:
            wrong.append("shapes=[]: an empty list; give at least one shape")
        return [(f"shapes[{i}]", each) for i, each in enumerate(asked)]
    if asked not in sets:
        wrong.append(f"shapes={asked}: op {op.name} has no set {asked!r}{nearest(asked, sets)}")
        return []
    return [(f"shapes.{asked}[{i}]", each) for i, each in enumerate(sets[asked])]


def faults(op: dict[str, Any], entry: dict[str, Any], where: str) -> list[str]:
    """What is wrong with one shape of an op that is given as plain data."""
    found, optional = [], op.get("dim_defaults", {})
    for dim, size in entry.items():
        if dim not in op["dims"]:
            found.append(f"{where}: op {op['name']} has no dim {dim!r}{nearest(dim, op['dims'])}")
        elif size_fault(size):
            found.append(f"{where}.{dim}: {size_fault(size)}")
    for dim in op["dims"]:
        if dim not in entry and dim not in optional:
            found.append(f"{where}: dim {dim!r} is missing")
    return found


def size_fault(size: object) -> str:
    """Half a sentence when a dim's size is no whole number from 0 on; empty when it is."""
    if isinstance(size, bool) or not isinstance(size, int):
        return f"a dim is a whole number, got {size!r}"
    if size >= BIGGEST:
        return f"a dim is below 2**63, got {size}"
    return f"a dim cannot be negative, got {size}" if size < 0 else ""


def evaluated(text: str, known: dict[str, Any], where: str) -> int:
    """The size that a formula gives. Raises Refusal, beginning with `where`, when it is no size."""
    try:
        value = formula.evaluate(text, known)
    except Refusal as refusal:
        raise Refusal(f"{where}: {refusal}") from refusal
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if size_fault(value):
        raise Refusal(f"{where}: {formula.gives(text, value, known)}; {size_fault(value)}")
    return value


def with_absent(dims: Iterable[str], shape: Shape) -> Shape:
    """The sizes that formulas see: a dim that a shape has not counts as 1."""
    return {dim: shape.get(dim, 1) for dim in dims}


def of_input(
    op: Op, sizes: Iterable[str], shape: Shape, attrs: dict[str, Any], where: str
) -> tuple[int, ...]:
    """An input's sizes; a dim that the shape has not has no axis. Raises Refusal, as `evaluated` does."""
    known = {**with_absent(op.dims, shape), **attrs}
    absent = set(op.dims) - set(shape)
    return tuple(
        evaluated(size, known, f"{where}[{i}]") for i, size in enumerate(sizes) if size not in absent
    )


def complete(dims: Iterable[str], formulas: dict[str, Any], entry: dict[str, int]) -> dict[str, int]:
    """Every dim with its size, in the order of `dims`; those left out by their formulas, or not at all.

    Raises Refusal when a formula has no value, or defaults need each other in a circle.
    """
    known = dict(entry)
    waiting = {dim: str(formulas[dim]) for dim in dims if dim not in entry and formulas[dim] is not None}
    while waiting:
        ready = [dim for dim, text in waiting.items() if not set(formula.names(text)) & set(waiting)]
        if not ready:
            raise Refusal(f"dim_defaults: {', '.join(waiting)} need each other in a circle")
        for dim in ready:
            known[dim] = evaluated(waiting.pop(dim), known, f"dim_defaults.{dim}")
    return {dim: known[dim] for dim in dims if dim in known}
