"""Tables on a GitHub markdown page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Iterable[str] = ()) -> list[str]:
    """The lines of a table; columns whose heading is among `words` stand left, numbers right."""
    words = set(words)
    rule = "".join("---|" if name in words else "---:|" for name in headings)
    return [line(headings), f"|{rule}", *map(line, rows)]


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


def escaped(text: str) -> str:
    """As it stands, on a markdown page: no emphasis, no tags, no further cells."""
    return re.sub(r"([\\|*<])", r"\\\1", " ".join(text.split("\n")))
