"""A case and a row of `results.csv` in words: what tables and progress lines share. Computes nothing anew."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from runner.config.folders import of_variant
from runner.files import cell
from runner.record.columns import best_first

Row = dict[str, str]

FIGURES = ("mean", "p20 - p80", "% of limit", "speedup", "max error")
HEADINGS = ("variant", *FIGURES, "verdict")

MACHINE = {  # facts of environment.json, by what a reader calls them
    "driver": "driver",
    "torch": "torch",
    "triton": "triton",
    "torch_cuda": "CUDA",
    "python": "python",
    "cpu": "CPU",
    "host": "host",
}

DISTURBED = 0.2  # of the mean: a median that is further away tells of another load, not of the variant
SCATTERED = 1.0  # of the median, between p20 and p80: so do times of which most are another's half or double
_NORMED = "judged by norm"
_LOG = "build.log"
_REST = re.compile(r": | \(")  # in a sentence of head-room: what follows is not for a table's cell
_FIGURE = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\d)")
_REASON = 300  # letters of a compiler's complaint: the rest is in its log


def title(op: str, attrs: Mapping, shape: Mapping, dtype: str, direction: str, layout: str) -> str:
    """A case in one line, the same in a plan, on the progress line and over a table."""
    words = [op, *pairs(attrs), *pairs(own(shape)), dtype]
    words += [direction] if direction != "forward" else []
    return " ".join(words + ([layout] if layout != "contiguous" else []))


def title_of(row: Row) -> str:
    attrs, shape = (json.loads(row[name] or "{}") for name in ("attrs", "shape"))
    return title(row["op"], attrs, shape, row["dtype"], row["direction"], row["layout"])


def cases(rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    """Rows by case, in order of first appearance; each with its one-line title."""
    order = list(dict.fromkeys(row["case_id"] for row in rows))
    rows = sorted(rows, key=lambda row: order.index(row["case_id"]))
    for _, group in groupby(rows, key=lambda row: row["case_id"]):
        group = best_first(list(group))
        yield title_of(group[0]), group


def pairs(values: Mapping[str, Any]) -> list[str]:
    """`name=value` by name, the order that the tables on disk keep."""
    return [f"{name}={plain(values[name])}" for name in sorted(values)]


def plain(value: Any) -> str:
    return "null" if value is None else cell(value)


def own(shape: Mapping[str, int]) -> dict[str, int]:
    """Without dims that repeat the one they are named after: `a_rows` is shown where it is not `rows`."""
    return {
        name: size
        for name, size in shape.items()
        if not any(_named_after(name, other) and size == shape[other] for other in shape)
    }


def _named_after(name: str, other: str) -> bool:
    """As `a_rows` is after `rows`, and `batch1` after `batch`."""
    return name.endswith(f"_{other}") or (name != other and name.rstrip("0123456789") == other)


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of one case. Columns that are empty in all rows are left out."""
    names = names_of(rows)
    cells = [[name, *figures(row), verdict(row)] for name, row in zip(names, comparable(rows))]
    kept = [i for i, name in enumerate(HEADINGS) if name not in FIGURES or any(line[i] for line in cells)]
    return [HEADINGS[i] for i in kept], [[line[i] for i in kept] for line in cells]


def comparable(rows: Sequence[Row]) -> list[Row]:
    """The rows of one case without speedups of disturbed times, or over them."""
    unsure = any(disturbed(row) for row in rows if row["variant"] == row["baseline"])
    return [row | {"speedup": ""} if unsure or disturbed(row) else row for row in rows]


def names_of(rows: Sequence[Row]) -> list[str]:
    """Each row's variant, with those of its parameters that tell it from its other rows here."""
    params = [json.loads(row["params"] or "{}") for row in rows]
    sets: dict[str, list[dict[str, Any]]] = {}
    for row, own in zip(rows, params):
        sets.setdefault(row["variant"], []).append(own)
    return [_name(row["variant"], own, sets[row["variant"]]) for row, own in zip(rows, params)]


def _name(variant: str, params: dict[str, Any], among: Sequence[dict[str, Any]]) -> str:
    telling = {k: v for k, v in params.items() if any(other.get(k) != v for other in among)}
    return " ".join([variant, *pairs(telling)])


def full_name(row: Row) -> str:
    """A row's variant with all its parameters."""
    return " ".join([row["variant"], *pairs(json.loads(row["params"] or "{}"))])


def figures(row: Row) -> list[str]:
    """The cells under `FIGURES`."""
    return [
        milliseconds(row["mean_ms"]),
        span(row["p20_ms"], row["p80_ms"]),
        _number(row["percent_of_limit"], "{:.1f}"),
        _number(row["speedup"], "{:.2f}x"),
        _number(row["max_abs_err"], "{:.1e}"),
    ]


def milliseconds(text: str) -> str:
    """Four significant digits in the unit that reads best."""
    if not text:
        return ""
    value = float(text)
    return f"{value * 1e3:.4g} us" if value < 1 else f"{value:.4g} ms"


def span(low: str, high: str) -> str:
    """`500.7 - 502.3 us`: the unit is said once where both have it."""
    if not low or not high:
        return ""
    low, high = milliseconds(low), milliseconds(high)
    return f"{low.removesuffix(high[-3:])} - {high}"


def size(count: float) -> str:
    """Bytes to three digits, in powers of 1000: 218 MB."""
    for unit in ("B", "KB", "MB", "GB"):
        if float(f"{count:.3g}") < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def rate(text: str) -> str:
    """GB/s or TFLOP/s to three digits, to two below a thousandth: 4288, 0.517, 0.00049."""
    if not text:
        return ""
    value = float(text)
    if not 0 < value < 1e3:
        return f"{value:.0f}"
    return f"{value:.{max(2 - math.floor(math.log10(value)), 0)}f}" if value >= 1e-3 else f"{value:.2g}"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _number(text: str, form: str) -> str:
    return form.format(float(text)) if text else ""


def disturbed(row: Row) -> bool:
    """Whether a timed row's mean and median tell different stories, or its times have no middle at all."""
    if row["status"] != "ok" or not row["mean_ms"] or not row["median_ms"]:
        return False
    mean, median = float(row["mean_ms"]), float(row["median_ms"])
    width = float(row["p80_ms"] or median) - float(row["p20_ms"] or median)
    return abs(median - mean) > DISTURBED * mean or width > SCATTERED * median


def verdict(row: Row) -> str:
    """In a few words: the status, where it fell, and for a time its head-room."""
    if disturbed(row):
        return "disturbed: do not compare"
    if row["status"] in ("ok", "checked", "skipped"):
        return ", ".join(filter(None, [row["status"], _short(_headroom(row))]))
    return row["status"] + (f" at {row['stage']}" if row["stage"] else "")


def _headroom(row: Row) -> str:
    """The first sentence of the note of a row whose limit is known."""
    return row["note"].partition("; ")[0] if row["percent_of_limit"] else ""


def _short(headroom: str) -> str:
    """`at the memory limit: only ...` is `at memory limit`; `remarks` has the rest."""
    return _REST.split(headroom)[0].replace(" the ", " ").removeprefix("the ")


def remarks(rows: Sequence[Row], folder: Path) -> list[str]:
    """What does not fit in a cell: sentences that several variants share once, then each variant's own.

    Sentences that differ in one figure are one as well: `naive, cpp: median -4, +13 % from the mean`.
    """
    names = names_of(rows)
    alike: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, row in zip(names, rows):
        for said in _sentences(row, folder):
            alike.setdefault(tuple(_FIGURE.split(said)), []).append((name, said))
    merged = [one for group in alike.values() for one in _merged(group)]
    shared = [f"{', '.join(who)}: {said}" for who, said in merged if len(who) > 1]
    alone: dict[str, list[str]] = {name: [] for name in names}
    for who, said in merged:
        if len(who) == 1:
            alone[who[0]].append(said)
    return shared + [f"{name}: {'; '.join(own)}" for name, own in alone.items() if own]


def _merged(group: Sequence[tuple[str, str]]) -> Iterable[tuple[list[str], str]]:
    """(names, sentence) of sentences that differ in figures alone: one of all where it is one figure."""
    figures = [_FIGURE.findall(text) for _, text in group]
    differing = [i for i, found in enumerate(zip(*figures)) if len(set(found)) > 1]
    if len(differing) > 1:
        for text in dict.fromkeys(text for _, text in group):
            yield [name for name, own in group if own == text], text
        return
    text = group[0][1]
    if differing:
        place = list(_FIGURE.finditer(text))[differing[0]]
        values = ", ".join(found[differing[0]] for found in figures)
        text = text[: place.start()] + values + text[place.end() :]
    yield [name for name, _ in group], text


def _sentences(row: Row, folder: Path) -> list[str]:
    headroom = _headroom(row)
    told = disturbed(row) or not _REST.search(headroom)  # all of it is in the verdict, or none of it counts
    notes = row["note"].split("; ")[1 if row["percent_of_limit"] else 0 :]
    normed = row["accuracy"] == "normwise" and row["status"] in ("ok", "checked")
    normed = normed and not any(note.startswith(_NORMED) for note in notes)  # it says how far off, too
    found = [_reason(row, folder), "" if told else headroom, *notes, _NORMED if normed else ""]
    return list(dict.fromkeys(filter(None, found)))


def _reason(row: Row, folder: Path) -> str:
    """The reason; of a compiler's output the line that says the error, and where the rest is."""
    log = _log(row)
    if row["stage"] != "build" or not (folder / log).is_file():
        return row["reason"]
    lines = re.split(
        r"\n|\s{2,}", row["reason"]
    )  # results.csv keeps no line ends, but the next line's indent
    first = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    first = first if len(first) <= _REASON else first[:_REASON].rpartition(" ")[0] + " ..."
    return f"{first}; see {log.as_posix()}"


def _log(row: Row) -> Path:
    """The build's log, from the folder of the run or of the sweep that the row's table lies in."""
    name = of_variant(row["variant"], json.loads(row["params"] or "{}"))
    job = row["run_id"].partition("/")[2]
    return Path(job) / "builds" / row["case_id"] / name / _LOG


def seeds(rows: Iterable[Row]) -> str:
    """What makes a row repeatable, for the line that names the folder."""
    found = list(dict.fromkeys(row["seed"] for row in rows if row["seed"]))
    if len(found) > 1:
        return "each job's seed is in results.csv"
    return f"seed {found[0]}" if found else ""
