"""A sweep over a variant's parameters: its best setting for each case, and the whole surface. Pure text.

Disturbed times are no setting's: they are called so, and are neither the best nor the worst.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from runner.report import cells
from runner.report.cells import Row
from runner.report.markdown import escaped
from runner.report.markdown import table as markdown_table

Setting = tuple[tuple[str, str], ...]  # (parameter, value) of those that were swept, by name


class Table(NamedTuple):
    """Cells as text; `words` are the headings of columns that hold no figures."""

    title: str
    headings: Sequence[str]
    lines: list[list[str]]
    words: tuple[str, ...]


def sections(rows: Sequence[Row]) -> list[str]:
    """The lines of `report.md` on the parameters that were swept; none where there were none."""
    lines: list[str] = []
    for pair in of(rows):
        for one in pair:
            lines += [f"**{escaped(one.title)}**", "", *markdown_table(*one[1:]), ""]
    return lines


def of(rows: Sequence[Row]) -> Iterator[tuple[Table, Table]]:
    """(best setting, all settings) of each variant whose parameters were swept and timed."""
    for (op, variant), own in _by(rows, "op", "variant").items():
        swept = _swept(own)
        if swept and any(map(_sure, own)):
            best = Table(f"{op} {variant}: the best setting", _BEST, list(_best(own, swept)), _BEST[:2])
            headings, body = _surface(own, swept)
            title = f"{op} {variant}: all settings, mean time"
            yield best, Table(title, headings, list(body), ("case", *swept[:-1]))


def _sure(row: Row) -> bool:
    return bool(row["mean_ms"]) and not cells.disturbed(row)


_BEST = ("case", "best setting", "mean", "worst", "worst / best", "settings")


def _by(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def _swept(rows: Iterable[Row]) -> list[str]:
    """The parameters with several values, by name."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in json.loads(row["params"] or "{}").items():
            values.setdefault(name, set()).add(cells.plain(value))
    return sorted(name for name, found in values.items() if len(found) > 1)


def _setting(row: Row, swept: Sequence[str]) -> Setting:
    params = json.loads(row["params"] or "{}")
    return tuple((name, cells.plain(params[name]) if name in params else "") for name in swept)


def _best(rows: Sequence[Row], swept: Sequence[str]) -> Iterator[list[str]]:
    for own in _by(rows, "case_id").values():
        timed = sorted(filter(_sure, own), key=lambda row: float(row["mean_ms"]))
        if timed:
            best, worst = timed[0], timed[-1]
            setting = " ".join(f"{name}={value}" for name, value in _setting(best, swept))
            ratio = float(worst["mean_ms"]) / float(best["mean_ms"])
            times = [cells.milliseconds(row["mean_ms"]) for row in (best, worst)]
            yield [cells.title_of(best), setting, *times, f"{ratio:.2f}x", f"{len(timed)} of {len(own)}"]


def _surface(rows: Sequence[Row], swept: Sequence[str]) -> tuple[list[str], Iterator[list[str]]]:
    """The last parameter across, the others and the cases down; what was not timed says why."""
    *down, across = swept
    columns = list(dict.fromkeys(dict(_setting(row, swept))[across] for row in rows))
    columns.sort(key=lambda text: (0, float(text), "") if _is_number(text) else (1, 0.0, text))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        setting = dict(_setting(row, swept))
        place = (cells.title_of(row), *(setting[name] for name in down))
        words = "disturbed" if cells.disturbed(row) else row["status"]
        lines.setdefault(place, {})[setting[across]] = (
            cells.milliseconds(row["mean_ms"]) if _sure(row) else words
        )
    body = ([*place, *(found.get(value, "") for value in columns)] for place, found in lines.items())
    return ["case", *down, *(f"{across}={value}" for value in columns)], body


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
