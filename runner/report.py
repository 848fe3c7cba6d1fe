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

from runner import roofline
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
    """In a few words: the status, where it fell, and for a time its head-room."""
    words = [row["status"] + (f" at {row['stage']}" if row["stage"] else "")]
    words += [row["note"].partition("; ")[0]] if row["percent_of_limit"] else []
    words += (
        ["judged by norm"] if row["accuracy"] == "normwise" and row["status"] in ("ok", "checked") else []
    )
    return "; ".join(words)


def remarks(rows: Sequence[dict[str, str]]) -> list[str]:
    """What does not fit in a cell: reasons and notes, variants that share one named together."""
    said: dict[str, list[str]] = {}
    for row in rows:
        notes = row["note"].split("; ")[1 if row["percent_of_limit"] else 0 :]
        text = "; ".join(filter(None, [row["reason"], *notes]))
        if text:
            said.setdefault(text, []).append(cells(row)[0])
    return [f"{', '.join(names)}: {text}" for text, names in said.items()]


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
        for remark in remarks(rows):
            console.print(f"   {remark}", style="dim", markup=False, highlight=False, soft_wrap=True)
        console.print()
    _print_traps(console, folder)
    console.print(f"results: {folder}", soft_wrap=True, highlight=False)


def traps(folder: Path) -> list[dict[str, str]]:
    """The rows of `traps.csv`; none where the run had none."""
    path = folder / "traps.csv"
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def trap_table(folder: Path) -> str:
    """`traps.csv` as markdown; empty where there is none."""
    rows = traps(folder)
    lines = ["| variant | timed how | reads | of the right time | why |", "|---|---|---:|---:|---|"]
    lines += [
        f"| {r['variant']} | {r['way']} | {milliseconds(str(float(r['reads_us']) / 1e3))} | "
        f"{float(r['over_right']):.2f}x | {r['lesson']} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n" if rows else ""


def _print_traps(console: Console, folder: Path) -> None:
    rows = traps(folder)
    if not rows:
        return
    title = "the same calls, timed in other ways"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for name in ("variant", "timed how", "reads", "of the right time", "why"):
        table.add_column(name, justify="right" if name in ("reads", "of the right time") else "left")
    for r in rows:
        reads = milliseconds(str(float(r["reads_us"]) / 1e3))
        table.add_row(r["variant"], r["way"], reads, f"{float(r['over_right']):.2f}x", escape(r["lesson"]))
    console.print(table)
    console.print()


def markdown(folder: Path) -> str:
    """The same tables as a GitHub markdown page."""
    return f"# {folder.name}\n\n{tables(folder)}\n{trap_table(folder)}"


def tables(folder: Path, op: str = "") -> str:
    """The tables alone, of one op or of all."""
    lines = []
    for heading, rows in cases([row for row in read(folder) if op in ("", row["op"])]):
        lines += [f"**{heading}**", "", "| " + " | ".join(_HEADINGS) + " |", "|---|" + "---:|" * 5 + "---|"]
        lines += ["| " + " | ".join(_plain(cell) for cell in cells(row)) + " |" for row in rows]
        lines += ["", *(f"- {_plain(remark)}" for remark in remarks(rows)), ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write(folder: Path) -> None:
    """`report.md` beside the tables it was made from."""
    (folder / "report.md").write_text(markdown(folder), encoding="utf-8")


def print_ceilings(ceilings: dict[str, Any]) -> None:
    """`mode=ceilings`: bandwidth by size and pattern, and the rates."""
    console = Console()
    console.print(f"{ceilings['device']}, driver {ceilings['driver'] or 'none'}, torch {ceilings['torch']}")
    for head, *rows in (roofline.table(ceilings), roofline.rates_table(ceilings)):
        table = Table(box=None, header_style="bold")
        for name in head:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)


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
