"""What the runner has measured of an op's variants on this device, published or in earlier runs. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner.files import ROOT, read_csv

PUBLISHED = ROOT / "outputs" / "published"
_MOST_TABLES = 300  # of a user's own, the newest
_NOW = "naive"  # what a pattern in a step is an instance of


@dataclass(frozen=True)
class Measured:
    """A variant, how many times faster than the naive form it was, and where that stands."""

    op: str
    variant: str
    forward: float
    backward: float | None  # None: its backward was not measured, and counts as unchanged
    table: str
    shape: str


def best(
    op: str, device: str, dtype: str, moved: float, output: Path, among: Iterable[str] = ()
) -> Measured | None:
    """The variant of `op` that saves most beside the naive form, at the measured size next to `moved` bytes.

    `device` is the device's name; `dtype` the op's. `among` names the variants that count; empty takes all
    but peers.
    """
    rows = [
        row for row in _rows(output) if row["op"] == op and row["device"] == device and row["dtype"] == dtype
    ]
    cases = _cases(rows)
    forward = [key for key in cases if key[1] == "forward"]
    if not forward:
        return None
    near = min(forward, key=lambda key: abs(math.log(_bytes(cases[key]) / max(moved, 1.0))))
    first = cases[near]
    backward = _backward_of(cases, near)
    best_of = None
    for name, row in first.items():
        if name == _NOW or (among and name not in among) or row["group"] == "peer":
            continue
        ratio = float(first[_NOW]["mean_ms"]) / float(row["mean_ms"])
        back = (
            float(backward[_NOW]["mean_ms"]) / float(backward[name]["mean_ms"]) if name in backward else None
        )
        found = Measured(op, name, ratio, back, row["table"], row["shape"])
        if best_of is None or _merit(found) > _merit(best_of):
            best_of = found
    return best_of


def _merit(one: Measured) -> tuple[bool, float]:
    """With a measured backward first: a step needs both."""
    return one.backward is not None, one.forward * (one.backward or 1.0)


def _cases(rows: Iterable[dict[str, str]]) -> dict[tuple[str, str, str], dict[str, dict[str, str]]]:
    """(run, direction, shape) -> rows by variant, of cases in which the naive form was timed."""
    found: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    for row in rows:
        key = (row["run_id"], row["direction"], row["shape"] + row["attrs"])
        found.setdefault(key, {}).setdefault(row["variant"], row)
    return {key: own for key, own in found.items() if _NOW in own and len(own) > 1}


def _backward_of(cases: dict, key: tuple[str, str, str]) -> dict[str, dict[str, str]]:
    """The backward at the same shape: of the same run if it has it, else of any."""
    same = [other for other in cases if other[1] == "backward" and other[2] == key[2]]
    same.sort(key=lambda other: other[0] != key[0])
    return cases[same[0]] if same else {}


def _bytes(rows: dict[str, dict[str, str]]) -> float:
    row = rows[_NOW]
    return max(float(row["read_bytes"]) + float(row["write_bytes"]), 1.0)


def _rows(output: Path) -> list[dict[str, str]]:
    own = (
        sorted(output.rglob("results.csv"), key=lambda path: path.stat().st_mtime) if output.is_dir() else []
    )
    paths = dict.fromkeys([*sorted(PUBLISHED.rglob("results.csv")), *own[-_MOST_TABLES:]])
    return [row for path in paths for row in _timed(path)]


@cache
def _timed(path: Path) -> tuple[dict[str, str], ...]:
    try:
        table = str(path.relative_to(ROOT))
    except ValueError:
        table = str(path)
    rows = [row for row in read_csv(path)[1] if row.get("status") == "ok" and row.get("mean_ms")]
    return tuple(row | {"table": table} for row in rows)
