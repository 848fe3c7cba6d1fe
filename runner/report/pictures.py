"""The pictures of a run, drawn by matplotlib from what `record` wrote. Each function gives a figure, or None.

A mark that stands for a row carries that row's id as `row:<id>`, which `page.py` makes hoverable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from runner.measure.statistics import quantile
from runner.report import canvas, cells, marks
from runner.report.canvas import Sheet
from runner.report.cells import Row
from runner.report.marks import Panel

MOST_CASES = 24  # in bars and strips; the table has them all
_SPREAD = 1.07  # variants of one intensity stand side by side by this factor
_LEAST_SPAN = 10.0  # of a roofline's rates, as a factor: smaller differences are for the table
_AROUND = 4.0  # so far does a roofline reach around its rows, as a factor
_HALVES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)  # of the mean: half the height of a strip


def all_of(sheet: Sheet) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of each picture that these rows have."""
    drawings = {"roofline": roof, "sizes": sizes, "speedup": speedup, "samples": strips}
    for name, draw in drawings.items():
        figure = draw(sheet)
        if figure is not None:
            yield name, figure


# ---- roofline ----


def roof(sheet: Sheet) -> Figure | None:
    """Arithmetic rate against intensity, a panel for each op; every row hangs below its own limit."""
    rows = [row for row in marks.timed(sheet.rows) if row["tflops"] and row["intensity"]]
    ops = list(dict.fromkeys(row["op"] for row in rows))
    if not rows:
        return None
    heights = [4.3 if len(ops) < 3 else 3.6] * len(ops)
    figure, axes = canvas.grid(sheet, heights, columns=min(len(ops), 2))
    for op, one in zip(ops, axes):
        own = [row for row in rows if row["op"] == op]
        _roofs(one, sheet, own)
        _points(one, sheet, own)
        one.set_xscale("log")
        one.set_yscale("log")
        one.set_xlim(*_reach(float(row["intensity"]) for row in own))
        low, high = one.get_ylim()
        one.set_ylim(min(low, high / _LEAST_SPAN), high * 1.3)
        scale, unit = (1, "TFLOP/s") if high > 0.1 else (1e3, "GFLOP/s")
        canvas.frame(one, sheet, op, "intensity, flops a byte", unit)
        for axis, by in ((one.xaxis, 1), (one.yaxis, scale)):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _, by=by: f"{by * value:g}"))
        canvas.minor_off(one)
    canvas.legend(figure, sheet, rows)
    return figure


def _points(one: Axes, sheet: Sheet, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(sheet.names[row["row_id"]] for row in rows))
    threads, limits, colours = [], [], []
    for row in rows:
        place = names.index(sheet.names[row["row_id"]]) - (len(names) - 1) / 2
        x, rate = float(row["intensity"]) * _SPREAD**place, float(row["tflops"])
        canvas.mark(one, sheet, row, x, rate)
        if row["limit_ms"]:
            limits.append((x, rate * float(row["mean_ms"]) / float(row["limit_ms"])))
            threads.append([(x, rate), limits[-1]])
            colours.append(sheet.style(row).colour)
    if limits:
        one.add_collection(LineCollection(threads, colors=colours, linewidths=0.6, alpha=0.45, zorder=2))
        one.plot(*zip(*limits), "_", ms=6, mew=1.2, color=sheet.theme.muted, zorder=2)


def _reach(intensities: Iterable[float]) -> tuple[float, float]:
    found = list(intensities)
    return min(found) / _AROUND, max(found) * _AROUND


def _roofs(one: Axes, sheet: Sheet, rows: Sequence[Row]) -> None:
    """The device's own roofs where its ceilings were kept: bandwidth at large sizes, and the rates."""
    if not sheet.ceilings:
        return
    low, high = _reach(float(row["intensity"]) for row in rows)
    bandwidth = max(speed for curve in sheet.ceilings["bandwidth"].values() for _, speed in curve) / 1e3
    units = {row["unit"] for row in rows} & set(sheet.ceilings["tflops"])
    top = max((sheet.ceilings["tflops"][unit] for unit in units), default=math.inf)
    knee = min(high, top / bandwidth)
    one.plot([low, knee], [bandwidth * low, bandwidth * knee], color=sheet.theme.muted, lw=1.2, zorder=1)
    place = min(low * (high / low) ** 0.12, knee)  # the line rises: what ends here lies above it
    one.annotate(
        f"{bandwidth:.3g} TB/s" if bandwidth >= 1 else f"{1e3 * bandwidth:.3g} GB/s",
        (place, bandwidth * place),
        xytext=(-4, 2),
        textcoords="offset points",
        ha="right",
        color=sheet.theme.muted,
        fontsize=8,
    )
    for unit in units:
        rate = sheet.ceilings["tflops"][unit]
        if rate / bandwidth < high:
            one.plot([rate / bandwidth, high], [rate, rate], color=sheet.theme.muted, lw=1.2, zorder=1)
            one.annotate(
                f"{unit} " + (f"{rate:.3g} TFLOP/s" if rate >= 0.1 else f"{1e3 * rate:.3g} GFLOP/s"),
                (high, rate),
                xytext=(0, 3),
                textcoords="offset points",
                ha="right",
                color=sheet.theme.muted,
                fontsize=8,
            )


# ---- time and share of the limit against size ----


def sizes(sheet: Sheet) -> Figure | None:
    """Time above, percent of the limit below, against size; a column for each dtype, direction and so on."""
    panels = marks.panels(sheet.rows)
    if not panels:
        return None
    columns = min(len(panels), 3)
    bands = math.ceil(len(panels) / columns)
    figure = canvas.blank(sheet, 2 * 2.7 * bands)
    grid = figure.subplots(2 * bands, columns, squeeze=False)
    for i, panel in enumerate(panels):
        band, column = divmod(i, columns)
        _times(grid[2 * band][column], sheet, panel)
        _shares(grid[2 * band + 1][column], sheet, panel)
    for i in range(len(panels), bands * columns):
        band, column = divmod(i, columns)
        for j in (0, 1):
            grid[2 * band + j][column].set_axis_off()
    lines = (line for panel in panels for line in panel.lines.values())
    canvas.legend(figure, sheet, [row for line in lines for _, row in line], limit=True)
    return figure


def _times(one: Axes, sheet: Sheet, panel: Panel) -> None:
    if limits := panel.limits():
        one.plot(*zip(*limits), color=sheet.theme.muted, lw=1.2, ls=":", zorder=1)
    _lines(one, sheet, panel, lambda row: float(row["mean_ms"]))
    canvas.frame(one, sheet, panel.title, "", "time")
    one.set_xscale("log", base=2)
    one.set_yscale("log")
    one.xaxis.set_major_formatter(FuncFormatter(canvas.size))
    canvas.times(one)
    canvas.minor_off(one)


def _shares(one: Axes, sheet: Sheet, panel: Panel) -> None:
    one.axhline(100, color=sheet.theme.muted, lw=1.2, ls=":", zorder=1)
    _lines(one, sheet, panel, lambda row: float(row["percent_of_limit"]) if row["percent_of_limit"] else None)
    canvas.frame(one, sheet, "", panel.x_label, "% of limit")
    one.set_xscale("log", base=2)
    one.set_ylim(0, max(108.0, one.get_ylim()[1]))
    one.xaxis.set_major_formatter(FuncFormatter(canvas.size))
    canvas.minor_off(one)


def _lines(one: Axes, sheet: Sheet, panel: Panel, value: Any) -> None:
    for line in panel.lines.values():
        points = [(x, value(row), row) for x, row in line if value(row) is not None]
        if not points:
            continue
        look = sheet.style(points[0][2])
        one.plot(
            [p[0] for p in points], [p[1] for p in points], look.dash, color=look.colour, lw=1.3, zorder=2
        )
        for x, y, row in points:
            canvas.mark(one, sheet, row, x, y)


# ---- speedup ----


def speedup(sheet: Sheet) -> Figure | None:
    """How many times faster than the baseline, a panel of bars for each case."""
    all_cases = ((title, cells.comparable(rows)) for title, rows in cells.cases(sheet.rows))
    found = [(title, [row for row in rows if row["speedup"]]) for title, rows in all_cases]
    found = [(title, rows) for title, rows in found if len(rows) > 1][:MOST_CASES]
    if not found:
        return None
    for one, title, rows in canvas.named(sheet, found, 0.55, 0.24):
        for i, row in enumerate(rows):
            _bar(one, sheet, row, i)
        canvas.frame(one, sheet, title, "", "")
        one.set_xlim(0, 1.22 * max(float(row["speedup"]) for row in rows))
        one.axvline(1, color=sheet.theme.muted, lw=1, ls=":", zorder=1)
        one.grid(visible=False, axis="y")
        one.tick_params(axis="y", colors=sheet.theme.ink)
    return one.figure


def _bar(one: Axes, sheet: Sheet, row: Row, i: int) -> None:
    value = float(row["speedup"])
    bar = one.barh([i], [value], height=0.72, color=sheet.style(row).colour, zorder=2)
    bar.patches[0].set_gid(f"row:{row['row_id']}")
    label = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
    ground = {"facecolor": sheet.theme.ground, "edgecolor": "none", "pad": 0.6}  # the dotted line ends there
    one.annotate(f"{value:.2f}x", (value, i), color=sheet.theme.ink, bbox=ground, **label)


# ---- samples ----


def strips(sheet: Sheet) -> Figure | None:
    """Every trial in time order against its row's mean, a panel for each case, a strip for each row."""
    found = [
        (t, [row for row in rows if row["row_id"] in sheet.samples]) for t, rows in cells.cases(sheet.rows)
    ]
    found = [(title, rows) for title, rows in found if rows][:MOST_CASES]
    if not found:
        return None
    for one, title, rows in canvas.named(sheet, found, 0.75, 0.3):
        half = _half(sheet, rows)
        for i, row in enumerate(rows):
            _strip(one, sheet, row, i, half)
        canvas.frame(one, sheet, title, f"trials in time order, ±{100 * half:g} %", "")
        one.margins(x=0.02)
        one.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        one.tick_params(axis="y", colors=sheet.theme.ink)
        one.grid(visible=False, axis="x")
    return one.figure


def _half(sheet: Sheet, rows: Sequence[Row]) -> float:
    """Half the height of a panel's strips, so that all but the outliers of all but the worst fit."""
    spans = []
    for row in rows:
        ordered = sorted(sheet.samples[row["row_id"]])
        spans.append((quantile(ordered, 0.95) - quantile(ordered, 0.05)) / ordered[len(ordered) // 2])
    return next((half for half in _HALVES if half >= quantile(sorted(spans), 0.75)), _HALVES[-1])


def _strip(one: Axes, sheet: Sheet, row: Row, i: int, half: float) -> None:
    samples, colour = sheet.samples[row["row_id"]], sheet.style(row).colour
    mean = sum(samples) / len(samples)
    points = [(x, (value / mean - 1) / half) for x, value in marks.thinned(samples)]
    inside = [(x, i - 0.42 * max(min(y, 1), -1)) for x, y in points]
    ground = one.axhspan(i - 0.42, i + 0.42, color=sheet.theme.grid, alpha=0.4, lw=0, zorder=0)
    ground.set_gid(f"row:{row['row_id']}")
    one.plot(*zip(*inside), "-", color=colour, lw=0.9, zorder=2)
    for sign, marker in ((1, "^"), (-1, "v")):  # what is further out stands at the edge
        out = [(x, i - 0.42 * sign) for x, y in points if y * sign > 1]
        if out:
            one.plot(*zip(*out), marker, color=colour, ms=4.5, zorder=4)
