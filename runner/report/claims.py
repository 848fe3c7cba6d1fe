"""Published figures beside our own: an experiment's `claims` against the tables of its jobs. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from runner.config.claims import MEASURES
from runner.files import write_csv
from runner.report import words

COLUMNS = ("claim", "op", "what", "published", "here", "unit", "verdict", "note")
_SAME = 0.1  # nearer than this share is the same
Row = dict[str, str]


def write_table(sweep: Path) -> list[dict[str, Any]]:
    """`claims.csv` of a sweep whose jobs carry claims; nothing where they do not."""
    jobs = sorted(path.parent for path in sweep.glob("*/config.yaml"))
    claims = yaml.safe_load((jobs[0] / "config.yaml").read_text("utf-8")).get("claims") if jobs else None
    if not claims:
        return []
    rows = [row for job in jobs for row in _rows(job)]
    table = [_judged(claim, rows) for claim in claims]
    write_csv(sweep / "claims.csv", COLUMNS, table)
    return table


def _rows(job: Path) -> list[Row]:
    """The rows of a job, with what its profiles say of them."""
    profiles = {row["row_id"]: row for row in words.read(job / "profiles.csv")}
    return [profiles.get(row["row_id"], {}) | row for row in words.read(job / "results.csv")]


def _judged(claim: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    own = [row for row in rows if _fits(claim, row)]
    here = _figure(claim, own)
    published = claim.get("figure", "")
    result = {
        "claim": claim["says"],
        "op": claim["op"],
        "unit": MEASURES[claim["measure"]],
        "published": published,
    }
    over = f" over {claim['over']}" if "over" in claim else ""
    at = " ".join(f"{name}={value}" for name, value in claim.get("shape", {}).items())
    what = " ".join(filter(None, [claim["variant"] + over, at]))
    verdict = _missing(claim, own) if here is None else _verdict(claim, here)
    return result | {"what": what, "here": here, "verdict": verdict, "note": claim.get("note", "")}


def _fits(claim: dict[str, Any], row: Row) -> bool:
    shape = json.loads(row["shape"] or "{}")
    asked = claim.get("shape", {})
    return row["op"] == claim["op"] and all(shape.get(name) == size for name, size in asked.items())


def _figure(claim: dict[str, Any], rows: Sequence[Row]) -> float | None:
    value = _of(claim["variant"], "mean_ms" if claim["measure"] == "speedup" else claim["measure"], rows)
    if claim["measure"] != "speedup" or value is None:
        return value
    slow = _of(claim["over"], "mean_ms", rows)
    return slow / value if slow is not None and value else None


def _of(variant: str, column: str, rows: Sequence[Row]) -> float | None:
    return next((float(row[column]) for row in rows if row["variant"] == variant and row.get(column)), None)


def _missing(claim: dict[str, Any], rows: Sequence[Row]) -> str:
    wanted = [claim["variant"], *([claim["over"]] if "over" in claim else [])]
    said = [
        f"{row['variant']} is {row['status']}"
        for row in rows
        if row["variant"] in wanted and row["status"] != "ok"
    ]
    return f"not measured here: {', '.join(said) or 'there is no such row'}"


def _verdict(claim: dict[str, Any], here: float) -> str:
    """What our figure means for the published one, in words that follow from the numbers."""
    if "figure" not in claim:
        return "measured here; no published figure"
    figure, least = float(claim["figure"]), claim.get("at_least", False)
    ratio = here / figure if figure else 0.0
    if least:
        return "holds" if here >= figure else f"does not hold here: {here:.0f} is under {figure:g}"
    if abs(ratio - 1) <= _SAME:
        return "the same here"
    if claim["measure"] == "mean_ms":
        return f"{1 / ratio:.1f}x faster here" if ratio < 1 else f"{ratio:.1f}x slower here"
    return f"more here: {ratio:.1f} times as much" if ratio > 1 else f"less here: {ratio:.2f} times as much"
