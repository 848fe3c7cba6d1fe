"""A step's tables: its operations, the steps of a sweep, before and after, published claims."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.profile import before_after
from runner.profile.rules import WORTH_PERCENT
from runner.profile.step import STEP_COLUMNS
from runner.record import joined
from runner.report import cells, words

MOST_ROWS = 12
_BEYOND = 110.0  # percent of the roofline: less is measuring
_OVER = (
    "over 100 % of roof: its data was still in a cache where the roof is the memory's, "
    "or the roof was measured while the machine was busier"
)
Grid = tuple[str, list[str], list[list[str]], list[str]]  # title, headings, lines, sentences below


def join(sweep: Path) -> None:
    """`steps.csv` of a sweep from those of its jobs."""
    jobs = sorted(sweep.glob("*/steps.csv"))
    if jobs:
        joined.join(jobs, sweep / "steps.csv", STEP_COLUMNS)


def side_by_side(folder: Path) -> Iterable[Grid]:
    """The steps of a sweep side by side, with what tells them apart."""
    rows = words.read(folder / "steps.csv")
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
            words.us(row["step_us"]),
            words.percent(row["busy_percent"]),
            row["syncs"],
            words.us(row["sync_host_us"]) if row["sync_host_us"] else "",
            words.us(row["sync_idle_us"]) if row["sync_idle_us"] else "",
            row["bound"],
        ]
        for row, own in zip(rows, settings)
    ]
    yield f"{rows[0]['workload']} on {rows[0]['device']}", headings, lines, _slower(rows, settings, telling)


def _slower(rows: Sequence[dict[str, str]], settings: Sequence[dict], telling: Sequence[str]) -> list[str]:
    """By how much each step is slower than the fastest; where the columns of waits come from."""
    least = min(float(row["step_us"]) for row in rows)
    said = []
    for row, own in zip(rows, settings):
        percent = 100 * (float(row["step_us"]) / least - 1)
        if percent > 0:
            what = ", ".join(f"{name}={own.get(name, '')}" for name in telling)
            said.append(f"  {what}: {percent:.1f} % slower than the fastest")
    if rows[0]["busy_percent"]:
        said.append("  the step is timed without the profiler, the waits under it, where the host is slower")
    else:
        said.append("  on a CPU nothing is waited for: what tells these steps apart is chance or the print")
    return said


def claims(folder: Path) -> Iterable[Grid]:
    rows = words.read(folder / "claims.csv")
    if rows:
        headings = ["claim", "what", "published", "here", "unit", "what it means", "note"]
        lines = [
            [
                row["claim"],
                f"{row['op']} {row['what']}",
                row["published"],
                words.number(row["here"], "{:.4g}"),
                row["unit"],
                row["verdict"],
                row["note"],
            ]
            for row in rows
        ]
        yield "published claims", headings, lines, [f"  {text}" for text in _from_where(rows)]


def _from_where(rows: Sequence[dict[str, str]]) -> Iterable[str]:
    """Of a claim at several sizes: at which it holds."""
    for claim in dict.fromkeys(row["claim"] for row in rows):
        own = [row for row in rows if row["claim"] == claim]
        held = [row["what"].partition(" ")[2] for row in own if row["verdict"] == "holds"]
        if len(own) > 1:
            yield f"{claim}: holds at {', '.join(held) or 'none of these sizes'}"


def step(folder: Path) -> Iterable[Grid]:
    steps, rows = words.read(folder / "steps.csv"), words.read(folder / "operations.csv")
    if not steps or not rows:
        return
    step = steps[0]
    head = "operation,where,time,share,sum,kernels,flop/byte,% of roof,constraint,lever,gain,at most,why"
    headings = head.split(",")
    some = [row for row in rows if float(row["share_percent"]) >= 0.5][:MOST_ROWS]
    some += [row for row in rows if row not in some and float(row["predicted_gain_percent"]) >= WORTH_PERCENT]
    lines = [
        [
            row["operation"],
            words.tail(row["where"]),
            words.us(row["device_us"]),
            words.percent(row["share_percent"]),
            words.percent(row["cumulated_percent"]),
            row["kernels"],
            words.number(row["intensity"]),
            words.number(row["percent_of_roofline"], "{:.0f}"),
            row["constraint"],
            row["lever"],
            words.percent(row["predicted_gain_percent"]),
            words.percent(row["most_gain_percent"]),
            row["reason"],
        ]
        for row in some
    ]
    rest = [row for row in rows if row not in some]
    more = f"  and {len(rest)} more, {sum(float(r['share_percent']) for r in rest):.1f} % together"
    below = [more] if rest else []
    if any(float(row["percent_of_roofline"] or 0) > _BEYOND for row in some):
        below.append(f"  {_OVER}")
    yield _title(step), headings, lines, below
    yield "", [], [], [*_saidstep(step), *waits(words.read(folder / "syncs.csv")), f"  {step['conclusion']}"]


def _title(step: dict[str, str]) -> str:
    return f"{step['workload']} on {step['device']}: {words.us(step['step_us'])} a step, without the profiler"


def _saidstep(step: dict[str, str]) -> Iterable[str]:
    parts = [
        f"{name} {words.us(step[f'{name}_us'])}" for name in ("forward", "backward", "optimizer", "data")
    ]
    what = "kernels" if step["busy_percent"] else "operators"
    how = "" if step["busy_percent"] else ", brought to the step's time without it"
    yield f"  {', '.join(parts)} of {words.us(step['device_us'])} in {what}, under the profiler{how}"
    if not step["busy_percent"]:
        yield (
            f"  on a CPU operators run in Python's thread: {words.us(step['python_us'])} a step are outside, "
            "and there are no synchronizes"
        )
        return
    python = f"of which {words.us(step['python_us'])} are Python outside operators"
    yield (
        f"  the GPU works {float(step['busy_percent']):.0f} % of the step: it is {step['bound']}-bound "
        f"(the host needs {words.us(step['host_us'])}, {python})"
    )
    stood, idle = words.us(step["sync_host_us"]), words.us(step["sync_idle_us"])
    count = cells.counted(int(step["syncs"]), "synchronize")
    yield f"  {count} a step; the host stood {stood} there, the GPU then {idle}"
    if float(step.get("loader_us") or 0):
        waited, idle = words.us(step["loader_us"]), words.us(step["loader_idle_us"])
        yield f"  the host waits {waited} a step for its loader; the GPU stands still {idle} of that"
    if step["note"]:
        yield f"  {step['note']}"


def comparison(folder: Path) -> Iterable[Grid]:
    rows = words.read(folder / "before_after.csv")
    if not rows:
        return
    headings = ["operation", "where", "before", "after", "saved", "share before", "share after", "predicted"]
    some = [row for row in rows[:-1] if max(float(row["before_percent"]), float(row["after_percent"])) >= 0.5]
    lines = [_compared(row) for row in [*some[:MOST_ROWS], rows[-1]]]
    sentences = [f"  {text}" for text in before_after.sentence(rows, words.read(folder / "operations.csv"))]
    yield "before and after", headings, lines, sentences


def _compared(row: dict[str, str]) -> list[str]:
    predicted = row["predicted_saving_us"]
    return [
        row["operation"],
        words.tail(row["where"]),
        words.us(row["before_us"]),
        words.us(row["after_us"]),
        words.us(row["saved_us"]),
        words.percent(row["before_percent"]),
        words.percent(row["after_percent"]),
        words.us(predicted) if predicted else "",
    ]


def waits(rows: Sequence[dict[str, str]]) -> Iterable[str]:
    for row in rows:
        yield (
            f"  waits at {row['place']}: {row['count']} a call ({row['by']}), "
            f"host {words.us(row['host_us'])}, GPU idle {words.us(row['idle_us'])}"
        )
