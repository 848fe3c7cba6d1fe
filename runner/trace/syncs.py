"""Where the host waited for the device: every synchronize of a call or step, with the user's line. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from runner.trace.events import Activity, Call, Trace

COLUMNS = ("place", "count", "host_us", "idle_us", "by", "operator", "python", "witness")
UNKNOWN = "(a line that is not the user's)"


def found(
    plain: Trace,
    detail: Trace,
    windows: Sequence[str],
    place: str,
    witness: Iterable[str] = (),
    loop: str = "",
) -> list[dict[str, Any]]:
    """One row for each place, the longest wait first: `count` a call, `host_us` that the host stood and
    `idle_us` that the device then had nothing to do, both a call.

    Lines are those of the `detail` pass; times those of the `plain` one, where the same synchronizes stand in
    the same order: in its window `loop` of several calls, as there what the last line of a call does to the
    next one shows, else in `windows`. `witness` holds the stacks at which torch itself warned: what only it
    saw is added.
    """
    known = _syncs(detail, place)
    names = [call.name for call in known]
    times = _times_in_loop(plain, loop, names) or _times(plain, windows, names)
    rows: dict[tuple, dict[str, Any]] = {}
    for position, call in enumerate(known):
        label = call.label or ""
        operator = call.op.name if call.op else ""
        key = (label, call.name, operator)
        row = rows.setdefault(key, _row(label, call.name, operator))
        host_us, idle_us = times[position] if times else (call.end - call.start, 0.0)
        row["count"] += 1
        row["host_us"] += host_us
        row["idle_us"] += idle_us
    _add_witnessed(rows, Counter(filter(None, witness)))
    return sorted(rows.values(), key=lambda row: -row["host_us"])


def _row(label: str, by: str, operator: str) -> dict[str, Any]:
    zero = {"count": 0, "host_us": 0.0, "idle_us": 0.0, "witness": "trace"}
    return zero | {"place": place_of(label), "by": by, "operator": operator, "python": label}


def place_of(label: str) -> str:
    """`file:line` of the innermost frame of a stack."""
    return label.rpartition(" > ")[2].partition(" ")[0] or UNKNOWN


def _syncs(trace: Trace, window: str) -> list[Call]:
    return [call for call in trace.of(window)[1] if call.synchronizes]


def _times(plain: Trace, windows: Sequence[str], names: Sequence[str]) -> list[tuple[float, float]]:
    """(host, idle) of each synchronize, means over the windows that have the same ones; empty without any."""
    every = [(window, _syncs(plain, window)) for window in windows]
    series = [(window, own) for window, own in every if [call.name for call in own] == list(names)]
    if not series:
        return []
    whole = [_waits(own, plain.of(window)[2]) for window, own in series]
    count = len(whole)
    return [tuple(sum(one[i][j] for one in whole) / count for j in (0, 1)) for i in range(len(names))]


def _times_in_loop(plain: Trace, loop: str, names: Sequence[str]) -> list[tuple[float, float]]:
    """The same of calls back to back. The last call is left out: nothing follows it."""
    own = _syncs(plain, loop) if loop in plain.windows else []
    calls = len(own) // len(names) if names else 0
    if calls < 2 or [call.name for call in own] != list(names) * calls:
        return []
    waits = _waits(own, plain.of(loop)[2])[: (calls - 1) * len(names)]
    return [
        tuple(sum(w[j] for w in waits[i :: len(names)]) / (calls - 1) for j in (0, 1))
        for i in range(len(names))
    ]


def _waits(calls: Sequence[Call], activities: Sequence[Activity]) -> list[tuple[float, float]]:
    """(host, idle) of each. A gap on the device, from the end of what was waited for to the start of the next
    thing, belongs to the first synchronize in it."""
    found, taken = [], None
    for call in calls:
        before = max((a.end for a in activities if a.end <= call.end), default=None)
        after = min((a.start for a in activities if a.start >= call.end), default=None)
        idle = after - before if None not in (before, after) and after != taken else 0.0
        taken = after
        found.append((call.end - call.start, max(idle, 0.0)))
    return found


def _add_witnessed(rows: dict[tuple, dict[str, Any]], warned: Counter) -> None:
    traced: Counter = Counter()
    for row in rows.values():
        traced[row["python"]] += row["count"]
        if row["python"] in warned:
            row["witness"] = "trace and torch"
    for label, count in warned.items():
        if label not in traced:
            rows[(label, "torch")] = _row(label, "torch's sync debug mode", "") | {
                "count": count,
                "witness": "torch",
            }
