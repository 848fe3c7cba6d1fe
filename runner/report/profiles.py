"""The tables of a profile on the terminal and as markdown, from its files. Computes nothing anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runner.files import write_whole
from runner.report import cells, steps, words
from runner.report.steps import MOST_ROWS, Grid

_NOT_A_TERMINAL = 1000


def tables(folder: Path) -> list[Grid]:
    """Everything a run's folder has of profiles; empty where it has none."""
    found = [
        *_of_variants(folder),
        *steps.side_by_side(folder),
        *steps.step(folder),
        *steps.comparison(folder),
    ]
    found += steps.claims(folder)
    return [each for each in found if each[2] or each[3]]


def _of_variants(folder: Path) -> Iterable[Grid]:
    cases = {row["row_id"]: cells.title_of(row) for row in words.read(folder / "results.csv")}
    for row in words.read(folder / "profiles.csv"):
        own = folder / row["folder"]
        kernels = words.read(own / "kernels.csv")
        variant = " ".join([row["variant"], *cells.pairs(json.loads(row["params"] or "{}"))])
        name = f"profile of {variant}, {cases.get(row['row_id'], row['case_id'])}"
        yield (_kernels(name, kernels) if kernels else _operators(name, words.read(own / "operators.csv")))
        yield (
            "",
            [],
            [],
            [*_said_of(row), *steps.waits(words.read(own / "syncs.csv")), f"  traces: {own}"],
        )


def _kernels(name: str, rows: Sequence[dict[str, str]]) -> Grid:
    headings = ["share", "device time", "launches", "kernel", "grid", "registers", "operator", "line"]
    lines = [
        [
            words.percent(row["share_percent"]),
            words.us(row["device_us"]),
            row["launches_per_call"],
            words.kernel(row["kernel"], 50),
            row["grid"],
            row["registers"],
            words.operator(row["operator"]),
            words.line(row["python"]),
        ]
        for row in rows[:MOST_ROWS]
    ]
    kernels = sum(int(row["launches_per_call"]) for row in rows if row["kind"] == "kernel")
    copies = sum(int(row["launches_per_call"]) for row in rows) - kernels
    also = f" and {copies} copies or fills" if copies else ""
    return f"{name}: {cells.counted(kernels, 'kernel')}{also} a call", headings, lines, _rest(rows)


def _operators(name: str, rows: Sequence[dict[str, str]]) -> Grid:
    headings = ["share", "time", "calls", "operator", "line"]
    rows = [row for row in rows if row["kind"] == "operator"]
    some = [row for row in rows if float(row["share_percent"]) >= 0.1]
    lines = [
        [
            words.percent(row["share_percent"]),
            words.us(row["device_us"]),
            words.number(row["calls"]),
            words.operator(row["operator"]),
            words.line(row["python"]),
        ]
        for row in some[:MOST_ROWS]
    ]
    calls = cells.counted(round(sum(float(row["calls"]) for row in rows)), "operator")
    return f"{name}: {calls} a call", headings, lines, _rest(rows[: len(some)] or rows)


def _rest(rows: Sequence[dict[str, str]]) -> list[str]:
    rest = rows[MOST_ROWS:]
    share = sum(float(row["share_percent"]) for row in rest)
    return [f"  and {len(rest)} more, {share:.1f} % together"] if rest else []


def _said_of(row: dict[str, str]) -> Iterable[str]:
    yield (
        f"  {words.us(row['device_us'])} a call against {words.us(row['timed_us'])} timed "
        f"({float(row['difference_percent']):+.1f} %)"
    )
    must, ratio = words.size(row["must_move_bytes"]), words.number(row["moved_over_must"])
    if ratio:
        moved = words.size(row["moved_bytes"])
        yield f"  must move {must}; its operators move {moved} by their shapes, {ratio}x"
    elif float(row["must_move_bytes"] or 0):
        yield f"  must move {must}; no operator launches its kernels: only profiler=ncu tells what they move"
    if float(row["product_percent"] or 0):
        yield f"  {float(row['product_percent']):.0f} % of its time are matrix products"
    if row["loop_us"]:
        busy, waited = (float(row[name]) for name in ("loop_busy_percent", "waited_percent"))
        yield (
            f"  in a loop the GPU works {busy:.0f} % of the time; {waited:.0f} % of its kernels waited for"
            f" their launch; the host is {words.us(row['ahead_us'])} ahead, the longest gap"
            f" {words.us(row['longest_gap_us'])} (under the profiler, which slows the host)"
        )
        if row.get("operators_us"):
            yield f"  the host spends {words.us(row['host_us'])} a call: {_parts(row)}"
    if row["note"]:
        yield f"  {row['note']}"


def _parts(row: dict[str, str]) -> str:
    """Of the host's time, the largest first."""
    names = {
        "launch_us": "launching",
        "operators_us": "in operators (dispatch, allocation)",
        "python_us": "in Python",
    }
    whole = float(row["host_us"])
    parts = sorted(((float(row[column]), name) for column, name in names.items()), reverse=True)
    return ", ".join(f"{us / whole:.0%} {name}".replace("%", " %") for us, name in parts)


# ---- where it goes ----


def show(folder: Path, console: Console | None = None) -> None:
    """On standard output, after the tables of the run."""
    console = console or Console()
    console = console if console.is_terminal else Console(width=_NOT_A_TERMINAL)
    for title, headings, lines, sentences in tables(folder):
        if title:
            console.print(Text(title, style="bold"), soft_wrap=True)
        if lines:
            console.print(_grid(headings, lines))
        for sentence in sentences:
            console.print(Text(sentence, style="dim"), soft_wrap=True)
        if not title:
            console.print()


def _grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, name in enumerate(headings):
        number = all(line[i][:1].isdigit() or line[i][:1] in "-" for line in lines)
        table.add_column(name, justify="right" if number else "left")
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def write(folder: Path) -> None:
    """`profile.md` beside the tables that it was made from; nothing where there is no profile."""
    if text := markdown(folder):
        write_whole(folder / "profile.md", f"# {folder.name}\n\n{text}")


def markdown(folder: Path) -> str:
    """The same as a GitHub markdown page; empty where there is no profile."""
    parts = []
    for title, headings, lines, sentences in tables(folder):
        parts += [f"**{title}**", ""] if title else []
        if lines:
            rows = [headings, ["---"] * len(headings), *lines]
            parts += [
                *("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows),
                "",
            ]
        parts += [*(f"- {sentence.strip()}" for sentence in sentences), ""]
    return "\n".join(parts)
