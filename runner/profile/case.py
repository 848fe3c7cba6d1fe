"""From the traces of one variant to its tables, and to what its row says. In the parent: no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.files import write_csv
from runner.measure.statistics import in_words
from runner.model import Case
from runner.trace import operators, overlap, reading, syncs, timeline
from runner.trace.costs import is_product
from runner.trace.events import Trace

PLAIN, DETAIL = "trace.json.gz", "trace_lines.json.gz"
LOOP, COLD = "loop", "call "
PROFILE_COLUMNS = tuple(
    "row_id,case_id,variant,params,folder,kernels_per_call,copies_per_call,device_us,span_us,timed_us,"
    "difference_percent,wall_s,host_us,launch_us,operators_us,python_us,loop_us,loop_busy_percent,loop_idle_us,longest_gap_us,ahead_us,"
    "waited_percent,syncs,product_percent,must_move_bytes,moved_bytes,moved_over_must,note".split(",")
)
AGREES_PERCENT = 3.0
_SHORT_US = 20.0  # a microsecond around a kernel is a share of one so short


def analyse(folder: Path, case: Case, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Writes operators.csv, kernels.csv and syncs.csv beside the traces in `folder`.

    The facts for `profiles.csv`; under `faults` why the profile cannot be used.
    """
    on_gpu = case.device != "cpu"
    plain, detail = reading.read(reading.load(folder / PLAIN)), reading.read(reading.load(folder / DETAIL))
    windows = plain.names(COLD)
    place = detail.names(COLD)[0]
    some, note = operators.units(plain, detail, windows, place, on_gpu)
    kernels = operators.kernel_rows(some)
    found = syncs.found(plain, detail, windows, place, answer["witness"], LOOP)
    rows = operators.operator_rows(plain, windows, some) + operators.python_rows(detail, place)
    write_csv(folder / "operators.csv", operators.OPERATOR_COLUMNS, rows)
    write_csv(folder / "kernels.csv", operators.KERNEL_COLUMNS, kernels)
    write_csv(folder / "syncs.csv", syncs.COLUMNS, found)
    moved = _moved(some)
    must = case.read_bytes + case.write_bytes
    facts = {
        "kernels_per_call": sum(r["launches_per_call"] for r in kernels if r["kind"] == "kernel")
        if on_gpu
        else "",
        "copies_per_call": sum(r["launches_per_call"] for r in kernels if r["kind"] != "kernel")
        if on_gpu
        else "",
        "device_us": sum(unit.us for unit in some),
        "syncs": sum(row["count"] for row in found) if on_gpu else "",
        "product_percent": _products(some),
        "must_move_bytes": must,
        "moved_bytes": "" if moved is None else moved,
        "moved_over_must": moved / must if must and moved is not None else "",
        "note": note,
        "kernels": kernels,
        "faults": _faults(plain, detail, windows, place, facts_zero=on_gpu and must > 0 and not kernels),
        **_host(plain, windows),
    }
    if timeline.available():
        panels = {windows[-1]: f"{case.op}: one call, alone", LOOP: f"{case.op}: calls back to back"}
        shown = {name: title for name, title in panels.items() if name in plain.windows}
        timeline.draw(plain, shown, folder / "timeline.png")
    return facts | _loop(plain, facts["kernels_per_call"], facts["copies_per_call"])


def _products(some: Sequence[operators.Unit]) -> float:
    """Percent of the device time in matrix products."""
    whole = sum(unit.us for unit in some)
    own = sum(unit.us for unit in some if unit.op and is_product(unit.op))
    return 100 * own / whole if whole else 0.0


def _moved(some: Sequence[operators.Unit]) -> float | None:
    """Bytes by the shapes of the operators that did the work; None where a kernel belongs to no operator, as
    one that Python launches itself, and nobody says what it moves."""
    if any(unit.op is None for unit in some):
        return None
    ops = {id(unit.op): unit.op for unit in some if unit.op}.values()
    return sum(op.read_bytes + op.written_bytes for op in ops if operators.works(op))


def _faults(plain: Trace, detail: Trace, windows, place: str, facts_zero: bool) -> list[str]:
    if facts_zero:
        return ["the profiler saw no kernel of a call on a GPU"]
    found = overlap.faults(plain, windows)
    counts = len(plain.of(windows[0])[2]), len(detail.of(place)[2])
    if counts[0] != counts[1] and not found:
        found.append(f"a call ran {counts[0]} kernels in one pass and {counts[1]} in another")
    return found


def _host(plain: Trace, windows: Sequence[str]) -> dict[str, float]:
    """Means over the calls, each alone: the host's time, that in launches, the device's first to last."""
    count = len(windows)
    span = sum(overlap.overlap(plain, window).span_us for window in windows)
    parts = [overlap.host_parts(plain, window) for window in windows]
    return _host_parts(*(sum(some) / count for some in zip(*parts))) | {"span_us": span / count}


def _host_parts(launch_us: float, operators_us: float, python_us: float) -> dict[str, float]:
    parts = {"launch_us": launch_us, "operators_us": operators_us, "python_us": python_us}
    return {"host_us": sum(parts.values())} | parts


def _loop(plain: Trace, *launched: Any) -> dict[str, Any]:
    """Calls back to back: who waited, and the host's time there. `launched`: kernels and copies a call."""
    if LOOP not in plain.windows:
        return {}
    one = overlap.overlap(plain, LOOP)
    if not one.launches:
        return {}
    calls = one.launches / sum(launched)
    return _host_parts(*(us / calls for us in overlap.host_parts(plain, LOOP))) | {
        "loop_us": one.span_us,
        "loop_busy_percent": 100 * one.busy_share,
        "loop_idle_us": one.idle_us,
        "longest_gap_us": max((gap.us for gap in one.gaps), default=0.0),
        "ahead_us": one.ahead_us,
        "waited_percent": 100 * one.waited / one.launches,
    }


def against(facts: dict[str, Any], timed_us: float) -> tuple[dict[str, Any], str]:
    """The facts with the harness's own figure beside the profile's, and a sentence for the row's note."""
    percent = 100 * (facts["device_us"] / timed_us - 1) if timed_us else 0.0
    count, us = facts["kernels_per_call"], in_words(facts["device_us"])
    if count == "":
        said = f"profile: {us} in its operators"
    elif count == 1:
        said = f"profile: 1 kernel a call of {us}"
    else:
        said = f"profile: {count} kernels a call, {us} in them"
    words = f"{said} against {in_words(timed_us)} timed"
    if abs(percent) > AGREES_PERCENT and facts["span_us"] > 0:
        words += _why(count, percent, facts)
    return facts | {"timed_us": timed_us, "difference_percent": percent}, words


def _why(count: int, percent: float, facts: Mapping[str, Any]) -> str:
    """What lies behind two figures that differ: time between kernels, or circumstances."""
    if count > 1:
        return f" ({in_words(facts['span_us'])} from the first to the last: the device waits between them)"
    if facts["device_us"] < _SHORT_US:
        return " (so short a kernel: what is timed includes its launch)"
    slower = "a kernel of very many short blocks is slower under the profiler; else " if percent > 0 else ""
    return f" ({percent:+.1f} %: {slower}one of the two was disturbed: profile it again)"
