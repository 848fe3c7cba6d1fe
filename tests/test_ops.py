"""Every op x variant x smoke shape against the float64 reference: parametrised from conf/op alone.

A new op is tested by being there. Compiled variants take seconds a shape, so they are tried on one.
"""

from __future__ import annotations

import functools

import pytest
import yaml

from runner.config.compose import compose
from runner.model import Case, PlannedCase
from runner.plan import plan
from tests.support import DEVICE, ROOT, Bench, declared, load, variants

OPS = sorted(path.stem for path in (ROOT / "conf" / "op").glob("*.yaml"))


@functools.cache
def _declared(op: str) -> dict:
    return yaml.safe_load((ROOT / "conf" / "op" / f"{op}.yaml").read_text())


def _points() -> list:
    return list(_every_point())


def _every_point():
    for op in OPS:
        spec = _declared(op)
        for direction in spec["cost"]:
            for variant in variants(op):
                yield pytest.param(op, variant, direction, id=f"{op}-{variant}-{direction}")


@functools.cache
def _planned(op: str, direction: str) -> tuple[PlannedCase, ...]:
    attrs = [f"attrs.{name}=all" for name in _declared(op).get("attrs") or {}]
    words = [f"op={op}", "variant=all", "shapes=smoke", "dtype=all", "layout=all", f"direction={direction}"]
    return plan(compose([*words, *attrs, f"device={DEVICE}", "seed=1"])).cases


class _Benches:
    """The references of one op and direction at a time, each worked out once for all of its variants."""

    def __init__(self) -> None:
        self._of, self._made = None, {}

    def at(self, op: str, direction: str, index: int) -> Bench:
        if self._of != (op, direction):
            self.close()
            self._of = (op, direction)
        if index not in self._made:
            self._made[index] = Bench(_planned(op, direction)[index])
        return self._made[index]

    def close(self) -> None:
        while self._made:
            self._made.popitem()[1].close()


@pytest.fixture(scope="module")
def benches():
    made = _Benches()
    yield made
    made.close()


def _off_by_one_at_most(cases: tuple[PlannedCase, ...], case: Case) -> bool:
    """Whether at most one of shape (the second one apart), dtype, layout and attributes is not the first."""
    first = cases[0].case
    second = next((one.case.shape for one in cases if one.case.shape != first.shape), first.shape)
    off = [case.shape not in (first.shape, second), case.dtype != first.dtype, case.layout != first.layout]
    off += [case.attrs[name] != value for name, value in first.attrs.items()]
    return sum(off) <= 1


@pytest.mark.parametrize(("op", "variant", "direction"), _points())
def test_variant_is_right_or_refuses_at_every_smoke_case(op, variant, direction, benches):
    fn = None if declared(op, variant, DEVICE).compile else load(op, variant)
    proven = 0
    for index, planned in enumerate(_planned(op, direction)):
        for entry in planned.entries:
            if entry.variant.name != variant or (
                entry.skip and not entry.skip.startswith("runs only when named")
            ):
                continue
            if entry.interpreted and not _off_by_one_at_most(_planned(op, direction), planned.case):
                continue  # the interpreter takes a second for what a GPU does in a microsecond
            if entry.variant.compile:
                fn = _compiled(op, variant) if not proven else None
            if fn is None:
                continue
            try:
                facts = benches.at(op, direction, index).prove(entry, fn)
            except NotImplementedError as refusal:
                assert str(refusal).strip(), "a refusal says why"
                continue
            assert facts["status"] == "ok", f"{planned.case}: {facts['reason']}"
            proven += 1
    assert proven or _refuses_everywhere(op, variant, direction)


def _compiled(op: str, variant: str):
    if "max-autotune" in str(declared(op, variant, DEVICE).compile) and DEVICE == "cpu":
        return None  # minutes of autotuning; the default mode compiles the same function
    return load(op, variant)


def _refuses_everywhere(op: str, variant: str, direction: str) -> bool:
    entries = [e for p in _planned(op, direction) for e in p.entries if e.variant.name == variant]
    return all(entry.skip for entry in entries)
