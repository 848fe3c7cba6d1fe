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
from runner.trace.events import Op, Trace

PLAIN, DETAIL = "trace.json.gz", "trace_lines.json.gz"
LOOP, COLD = "loop", "call "
PROFILE_COLUMNS = tuple(
    "row_id,case_id,variant,params,folder,kernels_per_call,copies_per_call,device_us,span_us,timed_us,"
    "difference_percent,wall_s,host_us,launch_us,loop_us,loop_busy_percent,loop_idle_us,longest_gap_us,ahead_us,"
    "waited_percent,syncs,product_percent,must_move_bytes,moved_bytes,moved_over_must,note".split(",")
)
AGREES_PERCENT = 3.0


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
    found = syncs.found(plain, detail, windows, place, answer["witness"])
    rows = operators.operator_rows(plain, windows, some) + operators.python_rows(detail, place)
    write_csv(folder / "operators.csv", operators.OPERATOR_COLUMNS, rows)
    write_csv(folder / "kernels.csv", operators.KERNEL_COLUMNS, kernels)
    write_csv(folder / "syncs.csv", syncs.COLUMNS, found)
    moved = sum(op.read_bytes + op.written_bytes for op in _workers(some))
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
        "moved_bytes": moved,
        "moved_over_must": moved / must if must else "",
        "note": note,
        "kernels": kernels,
        "faults": _faults(plain, detail, windows, place, facts_zero=on_gpu and must > 0 and not kernels),
        **_host(plain, windows),
    }
    if timeline.available():
        picture = LOOP if LOOP in plain.windows and on_gpu else windows[0]
        timeline.draw(plain, picture, folder / "timeline.png", f"{case.op}: {picture}")
    return facts | _loop(plain, facts["kernels_per_call"], facts["copies_per_call"])


def _products(some: Sequence[operators.Unit]) -> float:
    """Percent of the device time in matrix products."""
    whole = sum(unit.us for unit in some)
    own = sum(unit.us for unit in some if unit.op and is_product(unit.op))
    return 100 * own / whole if whole else 0.0


def _workers(some: Sequence[operators.Unit]) -> list[Op]:
    ops = {id(unit.op): unit.op for unit in some if unit.op}.values()
    return [op for op in ops if operators.works(op)]


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
    each = [overlap.overlap(plain, window) for window in windows]
    host = sum(end - start for start, end in (plain.windows[window] for window in windows))
    return {
        "host_us": host / count,
        "launch_us": sum(one.launch_us for one in each) / count,
        "span_us": sum(one.span_us for one in each) / count,
    }


def _loop(plain: Trace, *launched: Any) -> dict[str, Any]:
    """Calls back to back: who waited, and the host's time there. `launched`: kernels and copies a call."""
    if LOOP not in plain.windows:
        return {}
    one = overlap.overlap(plain, LOOP)
    if not one.launches:
        return {}
    start, end = plain.windows[LOOP]
    calls = one.launches / sum(launched)
    return {
        "host_us": (end - start) / calls,
        "launch_us": one.launch_us / calls,
        "loop_us": one.span_us,
        "loop_busy_percent": 100 * one.busy_share,
        "loop_idle_us": one.idle_us,
        "longest_gap_us": max((gap.us for gap in one.gaps), default=0.0),
        "ahead_us": one.ahead_us,
        "waited_percent": 100 * one.waited / one.launches,
    }


def against(facts: dict[str, Any], timed_us: float) -> tuple[dict[str, Any], str]:
    """The facts with the harness's own figure beside the profile's, and a sentence for the row's note."""
    profiled = facts["span_us"] if facts["span_us"] else facts["device_us"]
    percent = 100 * (facts["device_us"] / timed_us - 1) if timed_us else 0.0
    count = facts["kernels_per_call"]
    kernels = f"{count} kernel{'' if count == 1 else 's'} a call, " if count != "" else ""
    words = f"profile: {kernels}{in_words(facts['device_us'])} in them against {in_words(timed_us)} timed"
    if abs(percent) > AGREES_PERCENT and facts["span_us"] > 0:
        words += f" ({in_words(profiled)} from the first to the last)"
    return facts | {"timed_us": timed_us, "difference_percent": percent}, words
