"""What pictures share: colours that colour-blind readers tell apart, markers, and the rows' places in panels.

Pure; reads rows of `results.csv` as text and computes nothing anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from runner.report import cells
from runner.report.cells import Row

MARKERS = "os^DvPX<>hdp"


@dataclass(frozen=True)
class Theme:
    """Colours of a picture: text, lesser text, grid, ground, the baseline, and variants in turn."""

    ink: str
    muted: str
    grid: str
    ground: str
    baseline: str
    variants: tuple[str, ...]

    def named(self) -> dict[str, str]:
        """Each colour by the name of its CSS variable."""
        fixed = {name: getattr(self, name) for name in ("ink", "muted", "grid", "ground", "baseline")}
        return fixed | {f"v{i}": colour for i, colour in enumerate(self.variants)}


# After Okabe and Ito's palette; yellow and light orange are darker on white, blue is lighter on black.
LIGHT = Theme(
    "#1c2128",
    "#5b6470",
    "#dfe3e8",
    "#ffffff",
    "#868c95",
    ("#0072b2", "#d55e00", "#009e73", "#b84d97", "#c78500", "#56b4e9", "#7a7a00"),
)
DARK = Theme(
    "#e8ebef",
    "#9aa3af",
    "#2e343d",
    "#15181d",
    "#8d949e",
    ("#4aa3dc", "#f0803c", "#2fbf95", "#dd8cc2", "#f0b23e", "#a3dcff", "#e8dd55"),
)


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str
    dash: str


def names(rows: Sequence[Row]) -> dict[str, str]:
    """What each row is called in a legend, by its id: its variant, with parameters that vary in its op."""
    found = {}
    for op in dict.fromkeys(row["op"] for row in rows):
        own = [row for row in rows if row["op"] == op]
        found |= {row["row_id"]: name for row, name in zip(own, cells.names_of(own))}
    return found


def styles(rows: Sequence[Row], theme: Theme) -> dict[str, Style]:
    """A look for each name, the same in every picture; the baseline is grey."""
    called = names(rows)
    grey = {called[row["row_id"]]: row["variant"] == row["baseline"] for row in timed(rows)}
    found = {}
    for i, name in enumerate(sorted(grey, key=grey.get)):  # baselines last
        colour = theme.baseline if grey[name] else theme.variants[i % len(theme.variants)]
        found[name] = Style(colour, MARKERS[i % len(MARKERS)], "-" if i < len(theme.variants) else "--")
    return found


@dataclass
class Panel:
    """Rows that differ in size alone: a line for each variant, points by size."""

    title: str
    x_label: str
    lines: dict[str, list[tuple[float, Row]]] = field(default_factory=dict)

    def limits(self) -> list[tuple[float, float]]:
        """(size, least time in ms) where the limit is known: of the unit that allows the most."""
        least: dict[float, float] = {}
        for x, row in (point for line in self.lines.values() for point in line):
            if row["limit_ms"]:
                least[x] = min(least.get(x, float("inf")), float(row["limit_ms"]))
        return sorted(least.items())


def timed(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "ok" and row["mean_ms"]]


def panels(rows: Sequence[Row]) -> list[Panel]:
    """The rows as curves over size: a panel for each op, dtype, direction and so on, none for one size."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in timed(rows):
        key = tuple(row[name] for name in ("op", "attrs", "dtype", "direction", "layout", "timing"))
        groups.setdefault(key, []).append(row)
    several = len({row["attrs"] for row in rows}) > len({row["op"] for row in rows})
    return [panel for group in groups.values() for panel in _of_group(group, several)]


def _of_group(rows: list[Row], attrs: bool) -> Iterator[Panel]:
    shapes = {row["shape"]: cells.own(json.loads(row["shape"])) for row in rows}
    x_dim, label, split = _axis(list(shapes.values()))
    if not x_dim:
        return
    parts: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(shapes[row["shape"]].get(dim, 0) for dim in split), []).append(row)
    for values, part in parts.items():
        if len({row["shape"] for row in part}) > 1:
            fixed = [f"{dim}={value}" for dim, value in zip(split, values)]
            yield _panel(" ".join([*_title(part[0], attrs), *fixed]), label, x_dim, part)


def _axis(shapes: list[dict[str, int]]) -> tuple[str, str, list[str]]:
    """(the dim to draw along, its label, the dims that panels are split by); no dim for a single shape."""
    names = list(dict.fromkeys(name for shape in shapes for name in shape))
    values = {name: [shape.get(name, 0) for shape in shapes] for name in names}
    varying = [name for name in names if len(set(values[name])) > 1]
    if not varying:
        return "", "", []
    x_dim = max(varying, key=lambda name: (len(set(values[name])), names.index(name)))
    if len(set(values[x_dim])) < len(set(map(tuple, zip(*(values[name] for name in varying))))):
        return x_dim, x_dim, [name for name in varying if name != x_dim]
    same = [name for name in varying if values[name] == values[x_dim]]
    if len(varying) == 2 and len(totals := {math.prod(pair) for pair in zip(*map(values.get, varying))}) == 1:
        first, second = sorted(varying)
        return first, f"{first}, where {first} x {second} = {totals.pop()}", []
    return x_dim, " = ".join(same), []


def _title(row: Row, attrs: bool) -> list[str]:
    words = [row["op"], *(cells.pairs(json.loads(row["attrs"] or "{}")) if attrs else []), row["dtype"]]
    words += [row["direction"]] if row["direction"] != "forward" else []
    words += [row["layout"]] if row["layout"] != "contiguous" else []
    return words + ([row["timing"]] if row["timing"] != "cold" else [])


def _panel(title: str, label: str, x_dim: str, rows: list[Row]) -> Panel:
    panel = Panel(title, label)
    for name, row in zip(cells.names_of(rows), rows):
        size = float(json.loads(row["shape"])[x_dim])
        panel.lines.setdefault(name, []).append((size, row))
    for line in panel.lines.values():
        line.sort(key=lambda point: point[0])
    return panel


def thinned(samples: Sequence[float], most: int = 160) -> list[tuple[int, float]]:
    """(place in time, value): of each stretch the lowest and the highest, so that no outlier is lost."""
    if len(samples) <= most:
        return list(enumerate(samples))
    stretches = most // 2
    kept = set()
    for i in range(stretches):
        span = range(i * len(samples) // stretches, (i + 1) * len(samples) // stretches)
        kept |= {min(span, key=samples.__getitem__), max(span, key=samples.__getitem__)}
    return [(i, samples[i]) for i in sorted(kept)]
