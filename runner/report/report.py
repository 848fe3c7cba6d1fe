"""Tables from `results.csv` alone: on the terminal, and as `report.md`. Computes nothing anew."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runner.files import read_csv, write_whole
from runner.measure import roofline
from runner.model import Entry, Plan, PlannedCase, Refusal
from runner.plan import check_bytes
from runner.report import cells, page, surface
from runner.report.markdown import escaped
from runner.report.markdown import table as markdown_table
from runner.report.progress import COLOURS, title

_NOT_A_TERMINAL = 1000  # columns: what is piped is never wrapped
_TRAPS = "the same calls, timed in other ways"
_TRAP_HEADINGS = ("variant", "timed how", "reads", "of the right time", "what may be wrong with it")
_WORDS = ("variant", "verdict")
_LEFT_OUT_FIRST = ("p20 - p80", "max error", "speedup")  # where a terminal is too narrow


COLUMNS = (
    "`mean` is of the timed calls, `p20 - p80` their middle 60 %; `% of limit` is the least time that this "
    "device needs for the declared bytes and operations, over the mean; `speedup` is the baseline's mean "
    "(1.00x) over this one; `max error` is the largest difference from the definition in float64."
)


def read(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's or sweep's `results.csv`. Raises Refusal where there is none."""
    path = folder / "results.csv"
    if not path.is_file():
        raise Refusal(f"{folder} holds no results.csv: name the folder of a run or a sweep")
    return read_csv(path)[1]


# ---- on a terminal ----


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_NOT_A_TERMINAL)


def print_tables(folder: Path, console: Console | None = None) -> None:
    """One aligned table per case, best first, on standard output."""
    console = console or _console()
    rows, left_out = read(folder), {}
    for heading, group in cells.cases(rows):
        console.print(Text(heading, style="bold"), soft_wrap=True)
        table, missing = _fitting(group, console)
        left_out |= dict.fromkeys(missing)
        console.print(table)
        for remark in cells.remarks(group, folder):
            console.print(Text(_hanging(remark, console), style="dim"), soft_wrap=True)
        console.print()
    _print_best(console, rows)
    _print_traps(console, folder)
    if left_out:
        words = f"left out of this narrow terminal, but not of report.md: {', '.join(left_out)}"
        console.print(Text(words, style="dim"), soft_wrap=True)
    console.print(Text("   ".join(filter(None, [f"results: {folder}", cells.seeds(rows)]))), soft_wrap=True)


def _fitting(rows: Sequence[dict[str, str]], console: Console) -> tuple[Table, list[str]]:
    """The table, and what had to be left out of it to fit in the console's width."""
    headings, lines = cells.table(rows)
    styles = ["yellow" if cells.disturbed(row) else COLOURS.get(row["status"], "red") for row in rows]
    for count in range(len(_LEFT_OUT_FIRST) + 1):
        missing = [name for name in _LEFT_OUT_FIRST[:count] if name in headings]
        table = _table(headings, lines, styles, missing)
        natural = console.measure(table, options=console.options.update(max_width=_NOT_A_TERMINAL))
        if natural.maximum <= console.width:
            break
    return table, missing


def _table(
    headings: Sequence[str], lines: Sequence[Sequence[str]], styles: Sequence[str], missing: Sequence[str]
) -> Table:
    """One case. Only the verdict may wrap."""
    table = _plain_table()
    kept = [i for i, name in enumerate(headings) if name not in missing]
    for i in kept:
        words = headings[i] in ("variant", "verdict")
        narrow = headings[i].replace("% of ", "% of\n") if missing else headings[i]
        table.add_column(narrow, justify="left" if words else "right", no_wrap=headings[i] != "verdict")
    for line, style in zip(lines, styles):
        texts = [Text(line[i], style=style if headings[i] == "verdict" else "") for i in kept]
        table.add_row(*texts)
    return table


def _plain_table() -> Table:
    return Table(box=None, header_style="bold", pad_edge=False)


def _hanging(remark: str, console: Console) -> str:
    """Wrapped between words to the console, lines after the first further in."""
    indents = {"initial_indent": "  ", "subsequent_indent": "      "}
    return textwrap.fill(remark, console.width, break_long_words=False, break_on_hyphens=False, **indents)


def _print_best(console: Console, rows: Sequence[dict[str, str]]) -> None:
    """The best setting of each variant whose parameters were swept; `report.md` has all settings."""
    for best, _ in surface.of(rows):
        console.print(Text(best.title, style="bold"), soft_wrap=True)
        table = _plain_table()
        for name in best.headings:
            table.add_column(name, justify="left" if name in best.words else "right")
        for line in best.lines:
            table.add_row(*map(Text, line))
        console.print(table)
        console.print()


def _print_traps(console: Console, folder: Path) -> None:
    rows = traps(folder)
    if not rows:
        return
    console.print(Text(_TRAPS, style="bold"), soft_wrap=True)
    table = _plain_table()
    for name in _TRAP_HEADINGS:
        number = name in ("reads", "of the right time")
        table.add_column(name, justify="right" if number else "left", no_wrap=name in ("variant", "reads"))
    for row in rows:
        table.add_row(*map(Text, _trap(row)))
    console.print(table)
    console.print()


# ---- as markdown ----


def write(folder: Path, pictures: bool = False) -> None:
    """`report.md` beside its tables; with `pictures` also `report.html`, where it can be drawn."""
    write_whole(folder / "report.md", markdown(folder))
    if pictures and page.available():
        page.write(folder)


def markdown(folder: Path) -> str:
    """The same tables as a GitHub markdown page."""
    rows = read(folder)
    facts, seed = _facts(folder), cells.seeds(rows)
    why = escaped(str(facts.get("why") or ""))
    head = [f"# {folder.name}", why, _circumstances(facts), seed[0].upper() + seed[1:] + "." if seed else ""]
    head = [*filter(None, head), COLUMNS] if any(row["mean_ms"] for row in rows) else [*filter(None, head)]
    parameters = "\n".join(surface.sections(read(folder)))
    return "\n\n".join([*head, f"{tables(folder)}\n{parameters}{trap_table(folder)}"])


def _facts(folder: Path) -> dict[str, Any]:
    path = folder / "environment.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _circumstances(facts: dict[str, Any]) -> str:
    """Device, versions, host and time, for who reads the page elsewhere; empty where they were not kept."""
    named = [f"{name} {facts[name]}" for name in ("torch", "triton") if facts.get(name)]
    words = [facts.get("device_name"), *named, facts.get("host"), facts.get("time_utc")]
    return escaped(", ".join(str(word) for word in words if word))


def tables(folder: Path, op: str = "") -> str:
    """The tables alone, of one op or of all."""
    lines = []
    for heading, rows in cells.cases([row for row in read(folder) if op in ("", row["op"])]):
        headings, body = cells.table(rows)
        lines += [f"**{escaped(heading)}**", "", *markdown_table(headings, body, _WORDS), ""]
        lines += [*(f"- {escaped(remark)}" for remark in cells.remarks(rows, folder)), ""]
    return "\n".join(lines)


def traps(folder: Path) -> list[dict[str, str]]:
    """The rows of `traps.csv`; none where the run had none."""
    path = folder / "traps.csv"
    return read_csv(path)[1] if path.is_file() else []


def trap_table(folder: Path) -> str:
    """`traps.csv` as markdown; empty where there is none."""
    rows = traps(folder)
    lines = markdown_table(_TRAP_HEADINGS, map(_trap, rows), ("variant", "timed how", _TRAP_HEADINGS[-1]))
    return "\n".join([f"**{_TRAPS}**", "", *lines]) + "\n" if rows else ""


def _trap(row: dict[str, str]) -> tuple[str, ...]:
    reads = cells.milliseconds(str(float(row["reads_us"]) / 1e3))
    return row["variant"], row["way"], reads, f"{float(row['over_right']):.2f}x", row["lesson"]


# ---- modes that only print ----


def print_ceilings(ceilings: dict[str, Any]) -> None:
    """`mode=ceilings`: bandwidth by size and pattern, and the rates."""
    console = _console()
    facts = f"{ceilings['device']}, driver {ceilings['driver'] or 'none'}, torch {ceilings['torch']}"
    console.print(Text(facts), soft_wrap=True)
    for head, *rows in (roofline.table(ceilings), roofline.rates_table(ceilings)):
        table = Table(box=None, header_style="bold")
        for name in head:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    if roofline.disturbed(ceilings):
        words = "the machine was busy: a larger transfer took less time than a smaller one"
        console.print(Text(words, style="yellow"), soft_wrap=True)


def print_plan(plan: Plan, free: float = math.inf, console: Console | None = None) -> None:
    """`mode=plan`: every case with the memory it needs, and what each variant would do.

    `free`: bytes that the device has; what needs more is marked.
    """
    console = console or _console()
    for planned in plan.cases:
        words = Text.assemble((title(planned.case), "bold"), ("  " + _needs(planned), "dim"))
        console.print(words, soft_wrap=True)
        for entry in planned.entries:
            console.print(Text(f"  {_intent(entry, free)}"), soft_wrap=True)
    rows = sum(len(planned.entries) for planned in plan.cases)
    console.print(Text(f"{cells.counted(len(plan.cases), 'case')}, {cells.counted(rows, 'row')}"))


def _needs(planned: PlannedCase) -> str:
    """The most memory at once, of what would run at the case's own shape."""
    run = [entry.memory_bytes for entry in planned.entries if not entry.skip and not entry.interpreted]
    most = f", up to {cells.size(max(run) + check_bytes(planned.case))} with its check" if run else ""
    return f"case {planned.case.case_id}{most}"


def _intent(entry: Entry, free: float) -> str:
    name = " ".join([entry.variant.name, *cells.pairs(entry.params)])
    if entry.skip:
        return f"{name}: skipped, {entry.skip}"
    if entry.interpreted:
        return f"{name}: checked in Triton's interpreter at the smoke shapes, not timed"
    beyond = f", and {cells.size(free)} are free here" if entry.memory_bytes > free else ""
    return f"{name}: {cells.size(entry.memory_bytes)}{beyond}"
