"""Tables from `results.csv` alone: on the terminal, and as `report.md`. Computes nothing anew."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from runner.columns import best_first
from runner.model import Plan, Refusal
from runner.plan import check_bytes
from runner.progress import title

_HEADINGS = ("variant", "mean", "p20 - p80", "% of limit", "speedup", "max error", "verdict")
_CASE = ("op", "attrs", "shape", "dtype", "direction", "layout")


def read(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's or sweep's `results.csv`. Raises Refusal where there is none."""
    path = folder / "results.csv"
    if not path.is_file():
        raise Refusal(f"{folder} holds no results.csv: name the folder of a run or a sweep")
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cases(rows: Sequence[dict[str, str]]) -> Iterable[tuple[str, list[dict[str, str]]]]:
    """Rows by case, in order of first appearance; each with its one-line title."""
    order = list(dict.fromkeys(row["case_id"] for row in rows))
    rows = sorted(rows, key=lambda row: order.index(row["case_id"]))
    for _, group in groupby(rows, key=lambda row: row["case_id"]):
        group = best_first(list(group))
        yield _title(group[0]), group


def _title(row: dict[str, str]) -> str:
    words = [row["op"], *_pairs(row["attrs"]), *_pairs(row["shape"]), row["dtype"]]
    words += [
        row[name]
        for name, usual in (("direction", "forward"), ("layout", "contiguous"))
        if row[name] != usual
    ]
    return " ".join(words)


def _pairs(text: str) -> list[str]:
    return [f"{k}={v}" for k, v in json.loads(text or "{}").items()]


def cells(row: dict[str, str]) -> tuple[str, ...]:
    """A row's cells under `_HEADINGS`."""
    name = " ".join([row["variant"], *_pairs(row["params"])])
    spread = f"{milliseconds(row['p20_ms'])} - {milliseconds(row['p80_ms'])}" if row["p20_ms"] else ""
    return (
        name,
        milliseconds(row["mean_ms"]),
        spread,
        _number(row["percent_of_limit"], "{:.1f}"),
        _number(row["speedup"], "{:.2f}x"),
        _number(row["max_abs_err"], "{:.1e}"),
        _verdict(row),
    )


def milliseconds(text: str) -> str:
    """Four significant digits in the unit that reads best."""
    if not text:
        return ""
    value = float(text)
    return f"{value * 1e3:.4g} us" if value < 1 else f"{value:.4g} ms"


def _number(text: str, form: str) -> str:
    return form.format(float(text)) if text else ""


def _verdict(row: dict[str, str]) -> str:
    words = [row["status"] + (f" at {row['stage']}" if row["stage"] else "")]
    words += [row["reason"]] if row["reason"] else []
    words += (
        ["judged by norm"] if row["accuracy"] == "normwise" and row["status"] in ("ok", "checked") else []
    )
    words += [row["note"]] if row["note"] else []
    return words[0] + (": " if row["reason"] else "; " if words[1:] else "") + "; ".join(words[1:])


_COLOURS = {"ok": "green", "checked": "green", "skipped": "dim"}


def print_tables(folder: Path) -> None:
    """One aligned table per case, best first, on standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 160))
    for heading, rows in cases(read(folder)):
        table = Table(title=escape(heading), title_justify="left", box=None, header_style="bold")
        for name in _HEADINGS:
            table.add_column(
                name, justify="left" if name in ("variant", "verdict") else "right", overflow="fold"
            )
        for row in rows:
            colour = _COLOURS.get(row["status"], "red")
            *figures, verdict = (escape(cell) for cell in cells(row))
            table.add_row(*figures, f"[{colour}]{verdict}[/{colour}]")
        console.print(table)
        console.print()
    console.print(f"results: {folder}", soft_wrap=True, highlight=False)


def markdown(folder: Path) -> str:
    """The same tables as a GitHub markdown page."""
    return f"# {folder.name}\n\n{tables(folder)}"


def tables(folder: Path, op: str = "") -> str:
    """The tables alone, of one op or of all."""
    lines = []
    for heading, rows in cases([row for row in read(folder) if op in ("", row["op"])]):
        lines += [f"**{heading}**", "", "| " + " | ".join(_HEADINGS) + " |", "|---|" + "---:|" * 5 + "---|"]
        lines += ["| " + " | ".join(_plain(cell) for cell in cells(row)) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write(folder: Path) -> None:
    """`report.md` beside the tables it was made from."""
    (folder / "report.md").write_text(markdown(folder), encoding="utf-8")


def print_plan(plan: Plan) -> None:
    """`mode=plan`: every case with the memory it needs, and what each variant would do."""
    console = Console()
    for planned in plan.cases:
        case = planned.case
        need = (max(entry.memory_bytes for entry in planned.entries) + check_bytes(case)) / 1e9
        console.print(f"{title(case)}  [dim]case {case.case_id}, up to {need:.3g} GB with its check[/dim]")
        for entry in planned.entries:
            console.print("  " + escape(_intent(entry)), highlight=False, soft_wrap=True)
    rows = sum(len(planned.entries) for planned in plan.cases)
    console.print(f"{len(plan.cases)} cases, {rows} rows")


def _intent(entry: Any) -> str:
    params = "".join(f" {k}={v}" for k, v in entry.params.items())
    if entry.skip:
        return f"{entry.variant.name}{params}: skipped, {entry.skip}"
    if entry.interpreted:
        return f"{entry.variant.name}{params}: checked in Triton's interpreter at the smoke shapes, not timed"
    return f"{entry.variant.name}{params}: {entry.memory_bytes / 1e9:.3g} GB"
