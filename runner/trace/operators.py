"""Operators and kernels of a profile as tables: times of the plain pass, places of the detailed one. Pure.

A unit is what time is charged to: on a GPU a device activity (kernel, copy, fill), on the CPU an operator
with the time that it spent in itself. The passes run the same work, so that a unit of one is the unit at the
same position of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.trace.events import Activity, Op, Trace

OPERATOR_COLUMNS = tuple(
    "kind,operator,phase,python,calls,host_us,self_host_us,launch_us,device_us,share_percent,cumulated_percent,"
    "kernels,read_bytes,written_bytes".split(",")
)
KERNEL_COLUMNS = tuple(
    "kernel,kind,launches_per_call,device_us,share_percent,cumulated_percent,grid,block,registers,shared_bytes,"
    "occupancy_percent,stream,operator,python".split(",")
)
_PLUMBING = (  # what torch.compile puts around the operators of a graph
    "Torch-Compiled Region",
    "## Call CompiledFxGraph",
    "CompiledFunction",
    "TorchDynamo Cache Lookup",
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
)


@dataclass(eq=False)
class Unit:
    """`us` per call or step; `op` what it ran in, `top` the operator that the user's line called."""

    name: str
    us: float
    op: Op | None
    top: Op | None
    phase: str
    label: str
    activity: Activity | None = None


def units(
    plain: Trace, detail: Trace, windows: Sequence[str], place: str, on_gpu: bool
) -> tuple[list[Unit], str]:
    """The units of a call in order, their times the mean over `windows` of `plain`; `place` is the window of
    `detail`. The note says where the passes disagree: then the detailed pass has the times, too."""
    known = _units(detail, place, on_gpu)
    series = [_units(plain, window, on_gpu) for window in windows]
    fits = [one for one in series if [u.name for u in one] == [u.name for u in known]]
    if not fits:
        if on_gpu and series:  # times count more than places
            return series[0], "the pass with the user's lines ran other kernels: no places are known"
        return known, "the passes ran different operators: times are those of the slower pass"
    for position, unit in enumerate(known):
        unit.us = sum(one[position].us for one in fits) / len(fits)
    note = "" if len(fits) == len(series) else f"{len(series) - len(fits)} of {len(series)} calls differed"
    return known, note


def _units(trace: Trace, window: str, on_gpu: bool) -> list[Unit]:
    ops, _, activities = trace.of(window)
    if not on_gpu:
        return [_unit(op.name, op.self_us, op, op.phase, op.label) for op in ops]
    found = []
    for each in sorted(activities, key=lambda a: a.launch.start):
        call = each.launch
        one = _unit(each.name, each.us, call.op, call.phase, call.label)
        one.activity = each
        found.append(one)
    return found


def _unit(name: str, us: float, op: Op | None, phase: str, label: str) -> Unit:
    top = _top(op)
    if op and op.node and op.node.forward:
        made_by = _top(op.node.forward)
        top = top if is_compiled(made_by) else made_by
    return Unit(name, us, op, top, phase, label)


def _top(op: Op | None) -> Op | None:
    """The outermost operator around one that has the same line and is not the machinery of a compiler."""
    while (
        op
        and op.parent
        and op.parent.label == op.label
        and op.parent is not op.node
        and not is_compiled(op.parent)
    ):
        op = op.parent
    return op


def is_compiled(op: Op) -> bool:
    return op.name.startswith(_PLUMBING)


NO_WORK = tuple(
    f"aten::{name}"
    for name in "to empty as_strided view detach slice select expand transpose t reshape permute unsqueeze "
    "chunk split narrow resolve_conj result_type empty_strided empty_like _reshape_alias".split()
)


def works(op: Op) -> bool:
    """Whether an operator moves data itself: it launched something, or on the CPU spent most of its time."""
    own = op.launched > 0 or (op.self_us >= 0.5 * op.host_us and op.name not in NO_WORK)
    return own and not op.name.startswith("autograd::")


def operator_rows(trace: Trace, windows: Sequence[str], some: Sequence[Unit]) -> list[dict[str, Any]]:
    """`operators.csv`: largest share first, then those without device time by host time.

    Host times are means over `windows` of the plain pass; kernels, device time and bytes a call.
    """
    rows: dict[tuple, dict[str, Any]] = {}
    for unit in some:
        row = _row(rows, unit.op.name if unit.op else "(no operator)", unit.phase, unit.label)
        row["device_us"] += unit.us
        row["kernels"] += unit.activity is not None
    counted = {id(op): op for unit in some if (op := unit.op)}
    for op in counted.values():
        row = _row(rows, op.name, op.phase, op.label)
        row["read_bytes"] += op.read_bytes if works(op) else 0.0
        row["written_bytes"] += op.written_bytes if works(op) else 0.0
        row["calls"] += 1
    _host_times(trace, windows, rows)
    return shares(rows.values())


def _row(rows: dict, name: str, phase: str, label: str) -> dict[str, Any]:
    key = (name, phase, label)
    if key not in rows:
        zero = dict.fromkeys(OPERATOR_COLUMNS, 0.0)
        rows[key] = zero | {"kind": "operator", "operator": name, "phase": phase, "python": label}
    return rows[key]


def _host_times(trace: Trace, windows: Sequence[str], rows: dict) -> None:
    """The plain pass knows no lines: an operator's host time is shared out by its calls among its places."""
    totals: dict[tuple[str, str], list[float]] = {}
    for window in windows:
        ops, calls, _ = trace.of(window)
        for op in ops:
            one = totals.setdefault((op.name, op.phase), [0.0, 0.0, 0.0, 0.0])
            one[0] += 1 / len(windows)
            one[1] += op.host_us / len(windows)
            one[2] += op.self_us / len(windows)
        for call in calls:
            if call.op and call.correlation:
                one = totals.setdefault((call.op.name, call.op.phase), [0.0, 0.0, 0.0, 0.0])
                one[3] += (call.end - call.start) / len(windows)
    for (name, phase), (count, host, own, launch) in totals.items():
        places = [row for key, row in rows.items() if key[:2] == (name, phase)]
        if not places:
            places = [_row(rows, name, phase, "")]
            places[0]["calls"] = count
        whole = sum(row["calls"] for row in places) or 1
        for row in places:
            part = row["calls"] / whole
            row |= {"host_us": host * part, "self_host_us": own * part, "launch_us": launch * part}


def python_rows(detail: Trace, place: str) -> list[dict[str, Any]]:
    """The user's lines of `operators.csv`, longest first: how often each ran, the host's time in it and in
    what it called, under the detailed pass, which is slower than the others."""
    rows: dict[str, dict[str, Any]] = {}
    for line in detail.lines:
        if line.window == place:
            name = line.label.rpartition(" > ")[2]
            row = rows.setdefault(line.label, {"kind": "python", "operator": name, "python": line.label})
            row["calls"] = row.get("calls", 0) + 1
            row["host_us"] = row.get("host_us", 0.0) + line.us
    return sorted(rows.values(), key=lambda row: -row["host_us"])


def shares(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted by device time; shares are of their sum, so that they add up to 100."""
    ordered = sorted(rows, key=lambda row: (-row["device_us"], -row.get("host_us", 0.0)))
    whole, so_far = sum(row["device_us"] for row in ordered), 0.0
    for row in ordered:
        share = 100 * row["device_us"] / whole if whole else 0.0
        so_far += share
        row |= {"share_percent": share, "cumulated_percent": so_far}
    return ordered


def kernel_rows(some: Sequence[Unit]) -> list[dict[str, Any]]:
    """`kernels.csv`: one row for each kernel with its launch shape and place; empty on the CPU."""
    rows: dict[tuple, dict[str, Any]] = {}
    for unit in some:
        if unit.activity is None:
            continue
        args = unit.activity.args
        grid, block = (_by(args.get(name)) for name in ("grid", "block"))
        operator = unit.op.name if unit.op else ""
        key = (unit.name, grid, block, operator, unit.label)
        row = rows.setdefault(key, {"device_us": 0.0, "launches_per_call": 0})
        row["device_us"] += unit.us
        row["launches_per_call"] += 1
        row |= {
            "kernel": unit.name,
            "kind": unit.activity.kind,
            "grid": grid,
            "block": block,
            "registers": args.get("registers per thread", ""),
            "shared_bytes": args.get("shared memory", ""),
            "occupancy_percent": args.get("est. achieved occupancy %", ""),
            "stream": unit.activity.stream,
            "operator": operator,
            "python": unit.label,
        }
    return shares(rows.values())


def _by(sizes: Any) -> str:
    return "x".join(map(str, sizes)) if sizes else ""
