"""A figure as a part of a page, or as a picture of its own. With matplotlib."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy
from PIL import Image, PngImagePlugin

from runner.report.marks import LIGHT, Theme

_DPI = 144
_PLACEHOLDER = "#00fe{:02x}"  # stands in matplotlib's file for a variable of the page


def variables(theme: Theme) -> Theme:
    """The theme with a placeholder for each colour."""
    codes = {name: _PLACEHOLDER.format(i) for i, name in enumerate(theme.named())}
    variants = tuple(codes[f"v{i}"] for i in range(len(theme.variants)))
    fixed = {name: code for name, code in codes.items() if not re.fullmatch(r"v\d+", name)}
    return Theme(**fixed, variants=variants)


def inline(figure: Any, picture: str) -> str:
    """A figure that was drawn in `variables`, as part of a page.

    With ids of its own, the page's colours and fonts, and marks that know their rows.
    """
    svg = _svg(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<metadata>.*?</metadata>|<style type="text/css">.*?</style>', "", svg, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'id="row:(\w+)"', r'class="mark" data-row="\1"', svg)
    used = set(re.findall(r'(?:href="#|url\(#)([\w-]+)', svg))
    svg = re.sub(r' (?:d|x|y)="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), svg)
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="{picture}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{picture}-", svg)
    for i, name in enumerate(LIGHT.named()):
        svg = svg.replace(_PLACEHOLDER.format(i), f"var(--{name})")
    svg = re.sub(r"font: ([^;\"]*?)('DejaVu Sans'[^;\"]*)", r"font: \1var(--font)", svg)
    return re.sub(r"\n\s*", "\n", svg)


def _svg(figure: Any) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def png(figure: Any, path: Path, source: str) -> None:
    """A file that says its `source`.

    In the theme's colours and steps from them to the ground: the same to the eye, a third of the bytes.
    """
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    pixels = numpy.asarray(Image.open(file).convert("RGB"))
    found, which = numpy.unique(pixels @ numpy.array([1 << 16, 1 << 8, 1]), return_inverse=True)
    colours = numpy.array(_steps(LIGHT))
    apart = numpy.stack([found >> 16, found >> 8 & 255, found & 255], axis=-1)[:, None] - colours
    nearest = (apart**2).sum(-1).argmin(-1).astype(numpy.uint8)
    few = Image.fromarray(nearest[which].reshape(pixels.shape[:2]), "P")
    few.putpalette(colours.astype(numpy.uint8).tobytes())
    kept = PngImagePlugin.PngInfo()
    kept.add_text("Source", source)
    few.save(path, dpi=(_DPI, _DPI), pnginfo=kept, optimize=True)


def _steps(theme: Theme, count: int = 20) -> list[list[int]]:
    """Red, green and blue of each colour of the theme and of so many steps from it to the ground."""
    ground, *others = (
        [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        for colour in dict.fromkeys([theme.ground, *theme.named().values()])
    )
    return [ground] + [
        [round(value + (end - value) * step / count) for value, end in zip(colour, ground)]
        for colour in others
        for step in range(count)
    ]
