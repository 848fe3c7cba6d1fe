"""What was named of an op: variants, dtypes, directions, layouts, values of attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runner.model import Op
from runner.op import attributes, declaration
from runner.schema import DIRECTIONS, LAYOUTS
from runner.typed import nearest


class Names:
    """The names in `raw` held against an op; what the op does not have goes to `faults`."""

    def __init__(self, raw: dict[str, Any], op: Op, faults: list[str]) -> None:
        self.raw, self.op, self.faults = raw, op, faults

    def each(self, key: str, names: Iterable[str], known: Iterable[str], noun: str) -> None:
        """Complain about each of `names` that is not among `known`."""
        for name in names:
            if name not in known:
                mark = "." if key in ("attrs", "inputs") else "="
                what = f"op {self.op.name} has no {noun} {name!r}{nearest(name, known)}"
                self.faults.append(f"{key}{mark}{name}: {what}")

    def _listed(self, key: str) -> list[str]:
        """A name or a list of names; an empty list is a fault."""
        value = self.raw[key]
        names = [value] if isinstance(value, str) else list(value)
        if not names:
            self.faults.append(f"{key}=[]: an empty list; name at least one, or leave {key} out")
        return names

    def of(self, key: str, known: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
        """What was named of `known`, in the order it was named; `all` takes each."""
        if self.raw[key] is None:
            return default
        names = self._listed(key)
        self.each(key, [name for name in names if name != "all"], known, key)
        return _unique(each for name in names for each in (known if name == "all" else (name,)))

    def directions(self) -> tuple[str, ...]:
        ways = tuple(way for way in DIRECTIONS if way in self.op.cost and (way == "forward" or self.op.grad))
        names = [name for name in self._listed("direction") if name in DIRECTIONS and name not in ways]
        if names:
            self.faults.append(
                f"direction=backward: op {self.op.name} has no backward; it needs `grad` and `cost.backward`"
            )
            return ways
        return self.of("direction", ways, ("forward",))

    def layouts(self) -> tuple[str, ...]:
        declared = {layout for each in self.op.inputs for layout in each.layouts} | {"contiguous"}
        return self.of("layout", tuple(each for each in LAYOUTS if each in declared), ("contiguous",))

    def variants(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(those to run, those named one by one), both in the op's order."""
        op = self.op
        if isinstance(self.raw["variant"], dict):  # by op, in an experiment over several
            self.raw["variant"] = self.raw["variant"].get(op.name, "all")
        groups = {each.group for each in op.variants.values() if each.group}
        names, run = self._listed("variant"), set()
        self.each("variant", names, [*op.variants, "all", *sorted({*groups, declaration.PEER})], "variant")
        for name, variant in op.variants.items():
            everyday = "all" in names and variant.group != declaration.PEER
            if everyday or name in names or (variant.group and variant.group in names):
                run.add(name)
        if names and not run and not self.faults:
            self.faults.append(f"variant={','.join(names)}: op {op.name} has none in that group")
        return tuple(n for n in op.variants if n in run), tuple(n for n in op.variants if n in names)

    def attrs(self) -> dict[str, tuple[Any, ...]]:
        asked = self.raw["attrs"]
        self.each("attrs", asked, self.op.attrs, "attribute")
        chosen = {}
        for name, declared in self.op.attrs.items():
            chosen[name], faults = attributes.chosen(asked.get(name, declared[0]), declared)
            self.faults += [f"attrs.{name}={fault}" for fault in faults]
        return chosen


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
