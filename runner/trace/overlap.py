"""How host and device overlapped in a window of a trace: gaps, the host's lead, who waited. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from runner.trace.events import Activity, Call, Trace

LEAST_GAP_US = 2.0  # two kernels that follow each other at once are 1 to 2 us apart on their own
_GRAPHS = ("cudaGraphLaunch", "cuGraphLaunch")


@dataclass(frozen=True)
class Gap:
    """The device stood still; `by` says for what: the host's launch, its synchronize, or nothing known."""

    start: float
    end: float
    by: str
    label: str

    @property
    def us(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Overlap:
    """Microseconds of one window. `ahead_us`: from the end of a launch to the start of its kernel, median.

    `waited`: of the kernels after the first, how many began only because their launch came late.
    """

    span_us: float  # first to last moment of the device
    busy_us: float
    idle_us: float
    gaps: tuple[Gap, ...]
    ahead_us: float | None
    waited: int
    launches: int
    launch_us: float  # host time in launches

    @property
    def busy_share(self) -> float:
        return self.busy_us / self.span_us if self.span_us else 0.0


def overlap(trace: Trace, window: str) -> Overlap:
    """Host and device of a window; without activities everything is 0."""
    _, calls, activities = trace.of(window)
    launching = [a.launch for a in activities if a.launch]
    launch_us = sum(call.end - call.start for call in launching)
    if not activities:
        return Overlap(0.0, 0.0, 0.0, (), None, 0, 0, 0.0)
    merged = union((a.start, a.end) for a in activities)
    span = merged[-1][1] - merged[0][0]
    busy = sum(end - start for start, end in merged)
    lags = [max(a.start - a.launch.end, 0.0) for a in activities if a.launch]
    return Overlap(
        span_us=span,
        busy_us=busy,
        idle_us=span - busy,
        gaps=tuple(_gaps(merged, activities, calls)),
        ahead_us=statistics.median(lags) if lags else None,
        waited=_waited(activities),
        launches=len(launching),
        launch_us=launch_us,
    )


def host_parts(trace: Trace, window: str) -> tuple[float, float, float]:
    """The host's time in a window, in microseconds: in launches, otherwise in operators and calls of the
    runtime, outside of both (Python)."""
    ops, calls, activities = trace.of(window)
    start, end = trace.windows[window]
    launches = sum(
        call.end - call.start for call in {id(a.launch): a.launch for a in activities if a.launch}.values()
    )
    inside = sum(stop - begin for begin, stop in union((each.start, each.end) for each in [*ops, *calls]))
    return launches, max(inside - launches, 0.0), max(end - start - inside, 0.0)


def loading(trace: Trace, window: str) -> tuple[float, float]:
    """(microseconds in which the host waits for its loader, those in which the device then stands still)."""
    loads = union((each.start, each.end) for each in trace.loads if each.window == window)
    gaps = overlap(trace, window).gaps
    idle = sum(max(min(gap.end, end) - max(gap.start, start), 0.0) for start, end in loads for gap in gaps)
    return sum(end - start for start, end in loads), idle


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Overlapping spans as one, in order."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _gaps(merged: Sequence[tuple[float, float]], activities: Sequence[Activity], calls: Sequence[Call]):
    first = {a.start: a for a in reversed(activities)}
    for (_, before), (after, _) in pairwise(merged):
        if after - before < LEAST_GAP_US:
            continue
        launch = first[after].launch
        sync = next((c for c in calls if c.synchronizes and before - 5 <= c.end <= after), None)
        late = launch is not None and launch.end > before
        by = sync.name if sync else "the host's launch" if late else "the device"
        yield Gap(before, after, by, (sync or launch).label if (sync or launch) else "")


def _waited(activities: Sequence[Activity]) -> int:
    """Kernels whose launch ended after all before them were done, and which began at once."""
    done, count = activities[0].end, 0
    for each in activities[1:]:
        late = each.launch is not None and each.launch.end > done and each.start - done >= LEAST_GAP_US
        count += late
        done = max(done, each.end)
    return count


def faults(trace: Trace, windows: Sequence[str]) -> list[str]:
    """What shows that the trace dropped or duplicated a kernel, or that calls differ."""
    found = []
    if trace.dropped:
        found.append(f"{trace.dropped} device activities have no launch in the trace")
    by_correlation = Counter(a.correlation for a in trace.activities if a.correlation)
    for call in trace.calls:
        if not call.window:
            continue
        count = by_correlation.get(call.correlation, 0)
        if "LaunchKernel" in call.name and count == 0:
            found.append(f"a launch ({call.name} {call.correlation}) has no kernel in the trace")
        if count > 1 and call.name.partition("_v")[0] not in _GRAPHS:
            found.append(f"a launch ({call.name} {call.correlation}) has {count} kernels in the trace")
    counts = {window: len(trace.of(window)[2]) for window in windows}
    if len(set(counts.values())) > 1:
        found.append(f"its calls ran different numbers of kernels: {sorted(set(counts.values()))}")
    return found
