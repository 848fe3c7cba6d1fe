"""One call or step as a picture: the host's threads and the device's streams, waits and idle gaps marked.

Draws from a trace alone. Needs matplotlib, the optional extra `plots`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.trace.events import Activity, Op, Trace
from runner.trace.overlap import overlap

MISSING = "no timeline.png: it needs matplotlib (pip install 'kernel-runner[plots]')"
_PHASES = {"forward": "#4477aa", "backward": "#ee6677", "optimizer": "#228833", "data": "#ccbb44"}
_LAUNCH, _SYNC, _IDLE = "#bbbbbb", "#aa3377", "#ffdddd"
_LEGEND = {"launch": _LAUNCH, "synchronize": _SYNC, "device idle": _IDLE}
_NAMED_SHARE = 0.02  # of the width: a bar that is shorter has no room for its name
_LETTERS = 190  # that fit into the width


def available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw(trace: Trace, windows: Mapping[str, str], path: Path) -> None:
    """Writes a PNG with a panel for each window of a trace: window -> the panel's title."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    lanes = [_lanes(*trace.of(window)[::2]) for window in windows]
    heights = [1.0 + 0.7 * len(own) for own in lanes]
    figure = Figure(figsize=(14, sum(heights) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(windows), squeeze=False, height_ratios=heights)[:, 0]
    for axes, own, (window, title) in zip(panels, lanes, windows.items()):
        _panel(axes, own, trace, window)
        axes.set_title(title, loc="left")
    ops, activities = ([each for window in windows for each in trace.of(window)[which]] for which in (0, 2))
    colours = {phase: colour for phase, colour in _PHASES.items() if any(op.phase == phase for op in ops)}
    shown = colours | (_LEGEND if activities else {})
    patches = [Patch(color=colour, label=name) for name, colour in shown.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=7)
    figure.savefig(path, dpi=110)


Bars = list[tuple[str, float, float, str]]  # name, start, end, phase


def _panel(axes: Any, lanes: Sequence[tuple[str, Bars]], trace: Trace, window: str) -> None:
    """One window, in milliseconds from its begin."""
    _, calls, activities = trace.of(window)
    begin = trace.windows[window][0]
    end = max([trace.windows[window][1], *(a.end for a in activities)])
    for row, (_, bars) in enumerate(lanes):
        for name, start, stop, phase in bars:
            _bar(axes, row, name, (start - begin) / 1e3, (stop - start) / 1e3, phase, (end - begin) / 1e3)
    for call in calls:
        launched = call.correlation is not None and not call.synchronizes
        if call.synchronizes or launched:
            span = [((call.start - begin) / 1e3, (call.end - call.start) / 1e3)]
            axes.broken_barh(span, (-0.42, 0.2), color=_SYNC if call.synchronizes else _LAUNCH)
    for gap in overlap(trace, window).gaps:
        span = ((gap.start - begin) / 1e3, (gap.end - begin) / 1e3)
        axes.axvspan(*span, color=_IDLE, linewidth=0, zorder=0)  # an edge would make any gap a pixel wide
    axes.set_yticks(range(len(lanes)), [name for name, _ in lanes])
    axes.invert_yaxis()
    axes.set_xlim(0, (end - begin) / 1e3)
    axes.set_xlabel("ms")


def _lanes(ops: Sequence[Op], activities: Sequence[Activity]) -> list[tuple[str, Bars]]:
    """(name, bars) from the top: the host's threads with their outermost operators, then the streams."""
    threads = list(dict.fromkeys(op.thread for op in ops))
    lanes = []
    for number, thread in enumerate(threads):
        own = [op for op in ops if op.thread == thread and op.parent is None]
        bars = [(_plain(op.name), op.start, op.end, op.phase) for op in own]
        lanes.append(("host" if number == 0 else f"host, thread {number + 1}", bars))
    for stream in dict.fromkeys(a.stream for a in activities):
        own = [a for a in activities if a.stream == stream]
        bars = [(_work(a), a.start, a.end, a.launch.phase if a.launch else "forward") for a in own]
        lanes.append((f"GPU, stream {stream}", bars))
    return lanes


def _plain(operator: str) -> str:
    return operator.removeprefix("autograd::engine::evaluate_function: ").rpartition("::")[2]


def _work(activity: Activity) -> str:
    """Of torch's own the operator: many of its kernels are a `vectorized_elementwise_kernel`."""
    op = activity.launch.op if activity.launch else None
    if op and op.name.startswith("aten::"):
        return _plain(op.name).strip("_")
    return _brief(activity.name)


def _brief(kernel: str) -> str:
    return kernel.removeprefix("void ").partition("<")[0].partition("(")[0].rpartition("::")[2]


def _bar(axes: Any, row: int, name: str, start: float, width: float, phase: str, whole: float) -> None:
    look = {"facecolor": _PHASES[phase], "edgecolor": "white", "linewidth": 0.3}
    axes.broken_barh([(start, width)], (row - 0.2, 0.55), **look)
    if width > _NAMED_SHARE * whole:
        words = name[: int(_LETTERS * width / whole)]
        axes.text(start + width / 2, row + 0.08, words, ha="center", va="center", fontsize=7, color="white")
