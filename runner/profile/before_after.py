"""Two profiles of a step side by side: what was predicted to be gained, and what was. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.files import cell, read_csv
from runner.measure.statistics import in_words
from runner.model import Refusal
from runner.profile.rules import LIBRARY
from runner.profile.triage import gain_percent

COLUMNS = tuple(
    "operation,where,before_us,after_us,saved_us,before_percent,after_percent,predicted_saving_us".split(",")
)
STEP = "step"
_BY_LIBRARY = {text.rpartition(".")[2]: pattern for pattern, text in LIBRARY.items()}
Row = Mapping[str, Any]


def read(folder: Path, name: str) -> list[dict[str, str]]:
    """A table of a profile's folder. Raises Refusal where it is not one."""
    path = folder / name
    if not path.is_file():
        raise Refusal(f"before={folder}: it holds no {name}; name the folder of a profile of a workload")
    return read_csv(path)[1]


def changes(before: Row, after: Row) -> dict[str, tuple[str, str]]:
    """What of the step's configuration differs: form or argument -> (before, after)."""
    found = {}
    for column in ("forms", "args"):
        old, new = (json.loads(each[column] or "{}") for each in (before, after))
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                found[name] = (str(old.get(name, "")), str(new.get(name, "")))
    old, new = (cell(each["compile"]) for each in (before, after))
    if old != new:
        found["compile"] = (old, new)
    return found


def compared(
    before: Sequence[Row], after: Sequence[Row], steps: tuple[Row, Row], predicted: Mapping[str, float]
) -> list[dict[str, Any]]:
    """One row for each operation, the largest change first, and the step itself as the last.

    `predicted` holds microseconds to be saved by pattern (gelu, attention; `compile` for the whole step).
    """
    olds, news = _by_key(before), _by_key(after)
    rows = []
    for key in dict.fromkeys([*olds, *news]):
        old, new = olds.get(key, []), news.get(key, [])
        first = (old or new)[0]
        was, now = (sum(float(row["device_us"]) for row in some) for some in (old, new))
        rows.append(
            {
                "operation": first["operation"],
                "where": first["where"],
                "before_us": was,
                "after_us": now,
                "saved_us": was - now,
                "before_percent": sum(float(row["share_percent"]) for row in old),
                "after_percent": sum(float(row["share_percent"]) for row in new),
                "predicted_saving_us": predicted.get(key, ""),
            }
        )
    rows.sort(key=lambda row: -abs(row["saved_us"]))
    return [*rows, _step_row(steps, predicted)]


def _step_row(steps: tuple[Row, Row], predicted: Mapping[str, float]) -> dict[str, Any]:
    was, now = (float(each["step_us"]) for each in steps)
    row = {"operation": STEP, "where": "", "before_us": was, "after_us": now, "saved_us": was - now}
    return row | {
        "before_percent": 100.0,
        "after_percent": 100.0,
        "predicted_saving_us": sum(predicted.values()) if predicted else "",
    }


def _by_key(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """A pattern and the library's call for it are the same operation; others go by name and place."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        pattern = row["pattern"] or _BY_LIBRARY.get(row["operation"], "")
        key = pattern or f"{row['operation']} {row['where']}"
        found.setdefault(key, []).append(row)
    return found


def sentence(rows: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """Predicted against obtained, and the new top three, in words."""
    step = rows[-1]
    was, saved, predicted = float(step["before_us"]), float(step["saved_us"]), step["predicted_saving_us"]
    times = f"{in_words(was)} before, {in_words(float(step['after_us']))} after"
    said = [f"step: {times}: {abs(gain_percent(was, saved)):.1f} % {'saved' if saved >= 0 else 'lost'}"]
    if predicted != "":
        off = f" ({100 * (float(predicted) / saved - 1):+.0f} % of what was obtained)" if saved > 0 else ""
        said.append(f"predicted: {gain_percent(was, float(predicted)):.1f} % saved{off}")
    others = [row for row in rows[:-1] if row["predicted_saving_us"] == ""]
    if others and len(others) < len(rows) - 1:
        most = max(others, key=lambda row: abs(float(row["saved_us"])))
        moved = f"{in_words(abs(float(most['saved_us'])))} ({most['operation']})"
        said.append(f"what was not changed moved by up to {moved}: a smaller gain may be chance")
    top = [f"{row['operation']} {float(row['share_percent']):.0f} %" for row in after[:3]]
    return [*said, f"the new top three: {', '.join(top)}"]
