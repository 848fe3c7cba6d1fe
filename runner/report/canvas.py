"""What all pictures share: the sheet that is drawn on, panels in a grid, marks, legends. With matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from runner.report import cells, marks
from runner.report.cells import Row
from runner.report.marks import Style, Theme

WIDTH = 10.0  # inches


@dataclass(frozen=True)
class Sheet:
    """What there is to draw, and how it is to look."""

    rows: Sequence[Row]
    samples: Mapping[str, Sequence[float]]  # microseconds by row, in time order
    ceilings: Mapping[str, Any] | None
    theme: Theme

    @cached_property
    def names(self) -> dict[str, str]:
        return marks.names(self.rows)

    @cached_property
    def styles(self) -> dict[str, Style]:
        return marks.styles(self.rows, self.theme)

    def style(self, row: Row) -> Style:
        return self.styles[self.names[row["row_id"]]]


def blank(sheet: Sheet, height: float) -> Figure:
    """A figure whose panels are so many inches high, with room for a legend."""
    return Figure((WIDTH, height + 0.5), layout="constrained", facecolor=sheet.theme.ground)


def grid(sheet: Sheet, heights: Sequence[float], columns: int) -> tuple[Figure, list[Axes]]:
    """A panel for each height in inches, in so many columns; the highest of a line counts."""
    lines = [max(heights[i : i + columns]) for i in range(0, len(heights), columns)]
    figure = blank(sheet, sum(lines))
    axes = list(figure.subplots(len(lines), columns, squeeze=False, height_ratios=lines).flat)
    for one in axes[len(heights) :]:
        one.set_axis_off()
    return figure, axes[: len(heights)]


def frame(one: Axes, sheet: Sheet, title: str, x_label: str, y_label: str) -> None:
    """Title, labels, grid and ticks, the same in every panel."""
    theme = sheet.theme
    one.set_facecolor("none")
    one.set_title(title, loc="left", fontsize=9.5, fontweight="bold", color=theme.ink)
    one.set_xlabel(x_label, fontsize=9, color=theme.muted)
    one.set_ylabel(y_label, fontsize=9, color=theme.muted)
    one.grid(visible=True, color=theme.grid, lw=0.7, zorder=0)
    one.set_axisbelow(True)
    one.tick_params(colors=theme.muted, labelsize=8, length=0)
    for side, spine in one.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.grid)


def mark(one: Axes, sheet: Sheet, row: Row, x: float, y: float) -> None:
    """The point that stands for a row."""
    look = sheet.style(row)
    one.plot(
        [x],
        [y],
        look.marker,
        color=look.colour,
        ms=6.5,
        mec=sheet.theme.ground,
        mew=0.6,
        zorder=3,
        gid=f"row:{row['row_id']}",
    )


def legend(figure: Figure, sheet: Sheet, rows: Sequence[Row], limit: bool = False) -> None:
    """The names of these rows above the panels; with `limit` also the dotted line's."""
    shown = {sheet.names[row["row_id"]] for row in rows}
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, ls=look.dash, lw=1.3, ms=5.5, label=name)
        for name, look in sheet.styles.items()
        if name in shown
    ]
    if limit:
        handles.append(Line2D([], [], color=sheet.theme.muted, ls=":", lw=1.2, label="limit"))
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=fitting(handles),
        frameon=False,
        fontsize=8.5,
        labelcolor=sheet.theme.ink,
    )


def fitting(handles: Sequence[Line2D]) -> int:
    """How many columns of a legend stand side by side, by the longest label at 8.5 points."""
    longest = max(len(handle.get_label()) for handle in handles)
    return max(min(len(handles), int(WIDTH / (0.6 + 0.07 * longest))), 1)


def named(
    sheet: Sheet, found: Sequence[tuple[str, Sequence[Row]]], head: float, line: float
) -> Iterator[tuple[Axes, str, Sequence[Row]]]:
    """(panel, title that fits it, rows) of each case, a line for each row with its name at the side.

    A panel is `head` inches high and `line` for each row.
    """
    longest = max(len(name) for _, rows in found for name in cells.names_of(rows))
    columns = min(len(found), 3 if longest < 16 else 2)
    letters = int((WIDTH / columns - 0.3 - 0.075 * longest) / 0.09)  # of 9.5 points, bold
    _, axes = grid(sheet, [head + line * len(rows) for _, rows in found], columns)
    for one, (title, rows) in zip(axes, found):
        lines = textwrap.wrap(title, max(letters, 20), break_long_words=False, break_on_hyphens=False)
        one.set_yticks(range(len(rows)), cells.names_of(rows))
        one.set_ylim(len(rows) - 0.4, -0.6)
        yield one, "\n".join(lines), rows


def size(value: float, _: int) -> str:
    """65536 as 64k: sizes are mostly powers of two."""
    for step, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if value >= step and value % step == 0:
            return f"{value / step:.0f}{letter}"
    return f"{value:g}"


def times(one: Axes) -> None:
    """Ticks of a logarithmic axis of milliseconds, so many that at least two are named."""
    low, high = one.get_ylim()
    if high / low < 10:
        one.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    else:
        one.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,)))
    one.yaxis.set_major_formatter(FuncFormatter(lambda value, _: cells.milliseconds(str(value))))


def minor_off(one: Axes) -> None:
    """No ticks between those that are labelled."""
    one.xaxis.set_minor_formatter(NullFormatter())
    one.yaxis.set_minor_formatter(NullFormatter())
    one.minorticks_off()
