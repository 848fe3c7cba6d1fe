"""Run folders as `record` writes them, with times that a test chooses."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

from runner.files import cell, short_hash
from runner.measure.statistics import summarize
from runner.measure.stopping import half_width
from runner.record.columns import COLUMNS, SAMPLE_COLUMNS, SCHEMA_VERSION

FACTS = {"torch": "2.11.0", "driver": "580.1", "host": "h", "git": {"commit": "a" * 40, "modified": False}}


def row(variant: str = "builtin", mean_us: float = 100.0, **changes: Any) -> dict[str, Any]:
    """One row of gelu on a GPU; `mean_us` 0 leaves it untimed."""
    return {
        "schema_version": SCHEMA_VERSION,
        "op": "gelu",
        "attrs": {},
        "shape": {"rows": 64, "cols": 64},
        "layout": "contiguous",
        "dtype": "float32",
        "direction": "forward",
        "device": "NVIDIA H200",
        "device_uuid": "card-1",
        "variant": variant,
        "params": {},
        "accuracy": "elementwise",
        "source_sha": "0123",
        "status": "ok" if mean_us else "error",
        "stage": "" if mean_us else "build",
        "reason": "" if mean_us else "no such header",
        "timing": "cold" if mean_us else "",
        "sm_mhz": 1980,
        "mean_us": mean_us,
        "unit": "fp32",
        "baseline": "builtin",
        "seed": 1,
    } | changes


def write(folder: Path, rows: list[dict[str, Any]], samples: bool = True, **facts: Any) -> Path:
    """A run's folder; each timed row gets 40 samples with 0.2 % of white noise, by its folder's name."""
    folder.mkdir(parents=True)
    draw, raw = random.Random(folder.name), {}
    for one in rows:
        case = [one[name] for name in ("op", "attrs", "shape", "layout", "dtype", "direction")]
        one |= {"run_id": one.get("run_id", folder.name), "case_id": short_hash(case)}
        one["row_id"] = short_hash(
            [one["run_id"], one["variant"], one["params"], one["case_id"], one["timing"]]
        )
        if mean := one.pop("mean_us"):
            raw[one["row_id"]] = [mean * draw.gauss(1, 0.002) for _ in range(40)]
            _times(one, raw[one["row_id"]])
    _table(folder / "results.csv", COLUMNS, rows)
    lines = [
        {"row_id": key, "timing": "cold", "round": i, "device_us": one, "start_ns": i * 10**6}
        for key, found in raw.items()
        for i, one in enumerate(found)
    ]
    if samples:
        _table(folder / "samples.csv", SAMPLE_COLUMNS, lines)
    (folder / "environment.json").write_text(json.dumps(FACTS | facts))
    return folder


def _times(one: dict[str, Any], samples: list[float]) -> None:
    summary, half = summarize(samples), half_width(samples)
    named = {"mean": summary.mean, "median": summary.median, "min": summary.min}
    named |= {"p20": summary.p20, "p80": summary.p80, "std": summary.std}
    named |= {"mean_ci_low": summary.mean - half, "mean_ci_high": summary.mean + half}
    one |= {f"{name}_ms": value / 1e3 for name, value in named.items()} | {"trials": len(samples)}


def _table(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in one.items()} for one in rows)
