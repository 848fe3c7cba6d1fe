"""Figures of a profile's tables in words, and the tables themselves read back."""

from __future__ import annotations

from pathlib import Path

from runner.files import read_csv
from runner.measure.statistics import in_words


def us(text: str) -> str:
    return in_words(float(text or 0))


def percent(text: str) -> str:
    return f"{float(text):.1f} %" if text else ""


def size(text: str) -> str:
    """Bytes in the unit that reads best: `6.144 kB`, `23.62 GB`."""
    count = float(text or 0)
    for unit in ("B", "kB", "MB"):
        if count < 1e3:
            return f"{count:.4g} {unit}"
        count /= 1e3
    return f"{count:.4g} GB"


def number(text: str, form: str = "{:.3g}") -> str:
    return form.format(float(text)) if text else ""


def kernel(name: str, most: int) -> str:
    """Without what every kernel of torch's begins with: what it computes comes late in its name."""
    for common in ("void ", "at::native::", "(anonymous namespace)::"):
        name = name.replace(common, "")
    return name if len(name) <= most else name[: most - 3] + "..."


def line(stack: str) -> str:
    return tail(stack.rpartition(" > ")[2].partition(" ")[0])


def tail(where: str) -> str:
    """`gelu/naive.py:18`: the whole path is in the file."""
    return "/".join(where.split("/")[-2:])


def operator(name: str) -> str:
    """`add`; around a node of autograd's the engine runs `engine: AddBackward0`."""
    return name.removeprefix("aten::").replace("autograd::engine::evaluate_function:", "engine:")


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a table; none where it is not."""
    return read_csv(path)[1] if path.is_file() else []
