"""What a variant is checked on beside its case: an odd small shape, other layouts, other scales. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from runner.model import Case, Op, Variant
from runner.schema import CHECKS

SCALES = {"huge": 1e4, "tiny": 1e-4}  # far from 1, and within what float16 can hold
_PLAIN = ""
_LARGEST = 1 << 20  # elements of an input: beside the case there is to be little work
_SATURATED = ("huge", "infinities")  # there a gradient is a difference of equal numbers


def odd_shape(op: Op, shapes: list[dict[str, int]], cases: Callable[[dict[str, int]], Case]) -> dict | None:
    """The largest of the small smoke shapes without an empty input; odd in its last size where one is."""

    def size(shape: dict[str, int]) -> tuple[bool, int]:
        inputs = cases(shape).inputs
        sizes = [math.prod(one.shape) for one in inputs]
        if not all(0 < elements <= _LARGEST for elements in sizes):
            return False, 0
        return all(one.shape[-1] % 2 == 1 for one in inputs if one.shape), sum(sizes)

    best = max(shapes, key=size, default=None)
    return best if best is not None and size(best)[1] else None


class Extras:
    """Collects in `found` the cases that some variant is checked on beside `case`.

    `small` holds the case at the odd small shape by layout; it is empty where an op has none.
    """

    def __init__(self, op: Op, case: Case, small: Mapping[str, Case]) -> None:
        self.op, self.case, self.small = op, case, small
        self.found: list[Case] = []
        self.kinds = [_PLAIN, *(k for k in CHECKS if any(k in spec.check for spec in op.inputs))]
        if case.direction == "backward":
            self.kinds = [kind for kind in self.kinds if kind not in _SATURATED]

    def of(self, variant: Variant, accepts: Callable[[Case], bool]) -> tuple[int, ...]:
        """The places in `found` of what this variant is checked on: each kind once, layouts in turns.

        A compiler makes other code for another shape or layout: what it compiles keeps the case's own.
        """
        kinds = [k for k in self.kinds if k != "infinities" or variant.accuracy == "elementwise"]
        if variant.compile is not None:
            return tuple(self._place(self.case, kind) for kind in kinds[1:])
        places = []
        layouts = list(self.small.values())
        for i in range(max(len(kinds), len(layouts)) if layouts else 0):
            kind = kinds[i] if i < len(kinds) else _PLAIN
            fitting = [one for one in (layouts[i % len(layouts)], layouts[0]) if accepts(one)]
            places += [self._place(fitting[0], kind)] if fitting else []
        return tuple(dict.fromkeys(places))

    def _place(self, case: Case, kind: str) -> int:
        made = self._made(case, kind)
        if made not in self.found:
            self.found.append(made)
        return self.found.index(made)

    def _made(self, case: Case, kind: str) -> Case:
        inputs = tuple(
            replace(one, scale=SCALES.get(kind, 1.0), specials=kind == "infinities", file="")
            if kind in spec.check
            else replace(one, file="")
            for one, spec in zip(case.inputs, self.op.inputs, strict=True)
        )
        words = [f"scale {SCALES[kind]:g}"] if kind in SCALES else [kind] if kind else []
        own = case.case_id == self.case.case_id
        words += [] if own else [" ".join(f"{dim}={size}" for dim, size in case.shape.items())]
        words += [case.layout] if case.layout != "contiguous" else []
        return replace(case, inputs=inputs, where=", ".join(words), case_id=f"{case.case_id} {kind}")


def is_small(case: Case) -> bool:
    """Whether a case is little work for whatever tool it runs under."""
    return sum(math.prod(one.shape) for one in case.inputs) <= _LARGEST


def layouts(op: Op) -> tuple[str, ...]:
    """All that an input of the op declares, contiguous first."""
    declared = itertools.chain.from_iterable(spec.layouts for spec in op.inputs)
    return tuple(dict.fromkeys(["contiguous", *declared]))
