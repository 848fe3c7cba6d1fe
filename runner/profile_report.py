"""The tables of a profile on the terminal and as markdown, from its files. Computes nothing anew."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runner import before_after, collect
from runner.record import write_whole
from runner.workload_run import STEP_COLUMNS

_MOST_ROWS = 12
_NOT_A_TERMINAL = 1000
Grid = tuple[str, list[str], list[list[str]], list[str]]  # title, headings, lines, sentences below


def tables(folder: Path) -> list[Grid]:
    """Everything a run's folder has of profiles; empty where it has none."""
    found = [*_of_variants(folder), *_of_steps(folder), *_of_step(folder), *_of_comparison(folder)]
    found += _of_claims(folder)
    return [each for each in found if each[2] or each[3]]


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _of_variants(folder: Path) -> Iterable[Grid]:
    for row in _read(folder / "profiles.csv"):
        own = folder / row["folder"]
        kernels = _read(own / "kernels.csv")
        where = [text for text in (row["variant"], row["case_id"]) if text]
        name = f"profile of {' '.join(where)}"
        yield (_kernels(name, kernels) if kernels else _operators(name, _read(own / "operators.csv")))
        yield "", [], [], [*_said_of(row), *_waits(_read(own / "syncs.csv")), f"  traces: {own}"]


def _kernels(name: str, rows: Sequence[dict[str, str]]) -> Grid:
    headings = ["share", "device time", "launches", "kernel", "grid", "registers", "operator", "line"]
    lines = [
        [
            _percent(row["share_percent"]),
            _us(row["device_us"]),
            row["launches_per_call"],
            _short(row["kernel"], 50),
            row["grid"],
            row["registers"],
            row["operator"].removeprefix("aten::"),
            _line(row["python"]),
        ]
        for row in rows[:_MOST_ROWS]
    ]
    return f"{name}: {_counted(rows, 'kernel')}", headings, lines, _rest(rows)


def _operators(name: str, rows: Sequence[dict[str, str]]) -> Grid:
    headings = ["share", "time", "calls", "operator", "line"]
    rows = [row for row in rows if row["kind"] == "operator"]
    some = [row for row in rows if float(row["share_percent"]) >= 0.1]
    lines = [
        [
            _percent(row["share_percent"]),
            _us(row["device_us"]),
            _number(row["calls"]),
            row["operator"].removeprefix("aten::"),
            _line(row["python"]),
        ]
        for row in some[:_MOST_ROWS]
    ]
    return f"{name}: {_counted(rows, 'operator')}", headings, lines, _rest(rows[: len(some)] or rows)


def _rest(rows: Sequence[dict[str, str]]) -> list[str]:
    rest = rows[_MOST_ROWS:]
    share = sum(float(row["share_percent"]) for row in rest)
    return [f"  and {len(rest)} more, {share:.1f} % together"] if rest else []


def _said_of(row: dict[str, str]) -> Iterable[str]:
    yield (
        f"  {_us(row['device_us'])} a call against {_us(row['timed_us'])} timed "
        f"({float(row['difference_percent']):+.1f} %)"
    )
    if row["moved_over_must"]:
        must, moved = (float(row[name]) / 1e6 for name in ("must_move_bytes", "moved_bytes"))
        ratio = float(row["moved_over_must"])
        yield f"  must move {must:.4g} MB; its operators move {moved:.4g} MB by their shapes, {ratio:.3g}x"
    if float(row["product_percent"] or 0):
        yield f"  {float(row['product_percent']):.0f} % of its time are matrix products"
    if row["loop_us"]:
        busy, waited = (float(row[name]) for name in ("loop_busy_percent", "waited_percent"))
        yield (
            f"  in a loop the GPU works {busy:.0f} % of the time; {waited:.0f} % of its kernels waited for"
            f" their launch; the host is {_us(row['ahead_us'])} ahead, the longest gap"
            f" {_us(row['longest_gap_us'])} (under the profiler, which slows the host)"
        )
        launches = 100 * float(row["launch_us"]) / float(row["host_us"])
        host = f"of {_us(row['host_us'])} of host time a call"
        yield f"  {host} {_us(row['launch_us'])} ({launches:.0f} %) are launches"
    if row["note"]:
        yield f"  {row['note']}"


def _waits(rows: Sequence[dict[str, str]]) -> Iterable[str]:
    for row in rows:
        yield (
            f"  waits at {row['place']}: {row['count']} a call ({row['by']}), host {_us(row['host_us'])}, "
            f"GPU idle {_us(row['idle_us'])}"
        )


def join(sweep: Path) -> None:
    """`steps.csv` of a sweep from those of its jobs."""
    jobs = sorted(sweep.glob("*/steps.csv"))
    if jobs:
        collect.join(jobs, sweep / "steps.csv", STEP_COLUMNS)


def _of_steps(folder: Path) -> Iterable[Grid]:
    """The steps of a sweep side by side, with what tells them apart."""
    rows = _read(folder / "steps.csv")
    if len(rows) < 2:
        return
    settings = [
        json.loads(row["forms"]) | json.loads(row["args"]) | {"compile": row["compile"]} for row in rows
    ]
    telling = [name for name in settings[0] if len({str(each.get(name)) for each in settings}) > 1]
    headings = [*telling, "a step", "GPU busy", "synchronizes", "host stood", "GPU idle then", "bound"]
    lines = [
        [
            *(str(own.get(name, "")) for name in telling),
            _us(row["step_us"]),
            _percent(row["busy_percent"]),
            row["syncs"],
            _us(row["sync_host_us"]) if row["sync_host_us"] else "",
            _us(row["sync_idle_us"]) if row["sync_idle_us"] else "",
            row["bound"],
        ]
        for row, own in zip(rows, settings)
    ]
    yield f"{rows[0]['workload']} on {rows[0]['device']}", headings, lines, []


def _of_claims(folder: Path) -> Iterable[Grid]:
    rows = _read(folder / "claims.csv")
    if rows:
        headings = ["claim", "what", "published", "here", "unit", "what it means", "note"]
        lines = [
            [
                row["claim"],
                f"{row['op']} {row['what']}",
                row["published"],
                _number(row["here"], "{:.4g}"),
                row["unit"],
                row["verdict"],
                row["note"],
            ]
            for row in rows
        ]
        yield "published claims", headings, lines, []


def _of_step(folder: Path) -> Iterable[Grid]:
    steps, rows = _read(folder / "steps.csv"), _read(folder / "operations.csv")
    if not steps or not rows:
        return
    step = steps[0]
    head = "operation,where,time,share,sum,kernels,flop/byte,% of roof,constraint,lever,gain,at most,why"
    headings = head.split(",")
    some = [row for row in rows if float(row["share_percent"]) >= 0.5][:_MOST_ROWS]
    lines = [
        [
            row["operation"],
            _tail(row["where"]),
            _us(row["device_us"]),
            _percent(row["share_percent"]),
            _percent(row["cumulated_percent"]),
            row["kernels"],
            _number(row["intensity"]),
            _number(row["percent_of_roofline"], "{:.0f}"),
            row["constraint"],
            row["lever"],
            _percent(row["predicted_gain_percent"]),
            _percent(row["most_gain_percent"]),
            row["reason"],
        ]
        for row in some
    ]
    rest = rows[len(some) :]
    more = f"  and {len(rest)} more, {sum(float(r['share_percent']) for r in rest):.1f} % together"
    yield _title(step), headings, lines, [more] if rest else []
    yield "", [], [], [*_said_of_step(step), *_waits(_read(folder / "syncs.csv")), f"  {step['conclusion']}"]


def _title(step: dict[str, str]) -> str:
    return f"{step['workload']} on {step['device']}: {_us(step['step_us'])} a step"


def _said_of_step(step: dict[str, str]) -> Iterable[str]:
    parts = [f"{name} {_us(step[f'{name}_us'])}" for name in ("forward", "backward", "optimizer", "data")]
    yield f"  {', '.join(parts)} of {_us(step['device_us'])}"
    if not step["busy_percent"]:
        yield (
            f"  on a CPU operators run in Python's thread: {_us(step['python_us'])} a step are outside them, "
            "and there are no synchronizes"
        )
        return
    yield (
        f"  the GPU works {float(step['busy_percent']):.0f} % of the step: it is {step['bound']}-bound "
        f"(the host needs {_us(step['host_us'])}, of which {_us(step['python_us'])} Python outside operators)"
    )
    yield (
        f"  {step['syncs']} synchronizes a step; the host stood {_us(step['sync_host_us'])} at them, "
        f"the GPU then {_us(step['sync_idle_us'])}"
    )
    if step["note"]:
        yield f"  {step['note']}"


def _of_comparison(folder: Path) -> Iterable[Grid]:
    rows = _read(folder / "before_after.csv")
    if not rows:
        return
    headings = ["operation", "where", "before", "after", "saved", "share before", "share after", "predicted"]
    some = [row for row in rows[:-1] if max(float(row["before_percent"]), float(row["after_percent"])) >= 0.5]
    lines = [_compared(row) for row in [*some[:_MOST_ROWS], rows[-1]]]
    sentences = [f"  {text}" for text in before_after.sentence(rows, _read(folder / "operations.csv"))]
    yield "before and after", headings, lines, sentences


def _compared(row: dict[str, str]) -> list[str]:
    predicted = row["predicted_saving_us"]
    return [
        row["operation"],
        _tail(row["where"]),
        _us(row["before_us"]),
        _us(row["after_us"]),
        _us(row["saved_us"]),
        _percent(row["before_percent"]),
        _percent(row["after_percent"]),
        _us(predicted) if predicted else "",
    ]


# ---- words ----


def _us(text: str) -> str:
    value = float(text or 0)
    return f"{value / 1e3:.4g} ms" if abs(value) >= 1e3 else f"{value:.4g} us"


def _percent(text: str) -> str:
    return f"{float(text):.1f} %" if text else ""


def _number(text: str, form: str = "{:.3g}") -> str:
    return form.format(float(text)) if text else ""


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _line(stack: str) -> str:
    return _tail(stack.rpartition(" > ")[2].partition(" ")[0])


def _tail(where: str) -> str:
    """`naive.py:18`: the whole path is in the file."""
    return where.rpartition("/")[2]


def _counted(rows: Sequence, noun: str) -> str:
    return f"{len(rows)} {noun}{'' if len(rows) == 1 else 's'}"


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
