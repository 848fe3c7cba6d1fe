"""A comparison in words: tables for the terminal, and a markdown page for a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from runner.compare.pairs import Comparison, Pair
from runner.compare.ratio import CONFIDENCE, Ratio
from runner.record.kept import Row, Table
from runner.report import cells
from runner.report.markdown import escaped
from runner.report.markdown import table as markdown_table

ORDER = ("broken", "slower", "faster", "fixed", "ambiguous", "same", "untimed")
COLOURS = {"broken": "red", "slower": "red", "faster": "green", "fixed": "green", "ambiguous": "yellow"}
CHANGED = ("broken", "slower", "faster", "fixed")
HEADINGS = ("case", "variant", "A", "B", "B / A", f"{100 * CONFIDENCE:g} % interval", "verdict", "remark")
WORDS = ("case", "variant", "verdict", "remark")
_PIPED = 1000  # columns: what is no terminal's is never wrapped
_MOST_LISTED = 20
_MOST_WIDE = 100.0  # an interval's upper end over its lower one


def verdict_line(found: Comparison) -> str:
    """The whole in one line: `1 slower, 2 faster, 37 same`."""
    counts = Counter(pair.verdict for pair in found.pairs)
    words = [f"{counts[name]} {name}" for name in ORDER if counts[name]]
    words += [f"{len(rows)} only in {name}" for name, rows in zip("AB", found.only) if rows]
    bad = len(found.regressions())
    limit = f"{100 * found.threshold:g} %"
    judged = f"{cells.counted(bad, 'regression')} beyond {limit}" if bad else f"no regression beyond {limit}"
    return f"{judged}: {', '.join(words)}"


def remarks(found: Comparison) -> Iterator[str]:
    """What a reader must know before any figure: other cards, other versions."""
    devices = [_values(rows, "device") for rows in _rows(found)]
    cards = [_values(rows, "device_uuid") for rows in _rows(found)]
    if devices[0] != devices[1]:
        yield f"different devices, so the ratios compare devices and not code: {_a_and_b(devices)}"
    elif cards[0] != cards[1]:
        yield f"another card of the same kind ({_joined(devices[0])}): cards differ by a few percent"
    differing = [(label, _facts(found, name)) for name, label in cells.MACHINE.items()]
    changes = [f"{label} {_a_and_b(values)}" for label, values in differing if values[0] != values[1]]
    if changes:
        yield f"different environments: {'; '.join(changes)}"
    commits = [_commits(tables) for tables in found.tables]
    if commits[0] != commits[1]:
        yield f"commits: {_a_and_b(commits)}"
    for name, tables in zip("AB", found.tables):
        if not all(table.path.with_name("samples.csv").is_file() for table in tables):
            yield f"samples were not kept of all of {name}: there the intervals are those of results.csv"


def _rows(found: Comparison) -> Iterator[list[Row]]:
    yield [pair.a for pair in found.pairs]
    yield [pair.b for pair in found.pairs]


def _values(rows: Iterable[Row], name: str) -> list[str]:
    return sorted({row[name] for row in rows})


def _facts(found: Comparison, name: str) -> list[list[str]]:
    return [_joined_facts(tables, name) for tables in found.tables]


def _joined_facts(tables: Sequence[Table], name: str) -> list[str]:
    values = {str(table.fact(row, name)) for table in tables for row in table.rows[:1]}
    return sorted(values - {"None", ""})


def _commits(tables: Sequence[Table]) -> list[str]:
    states: list[Any] = [table.fact(row, "git") or {} for table in tables for row in table.rows[:1]]
    changed = {
        s["commit"][:12] + (" with changes" if s.get("modified") else "") for s in states if s.get("commit")
    }
    return sorted(changed)


def _joined(values: Sequence[str]) -> str:
    return ", ".join(values) or "unknown"


def _a_and_b(values: Sequence[Sequence[str]]) -> str:
    return f"A {_joined(values[0])}, B {_joined(values[1])}"


def line(pair: Pair) -> list[str]:
    """The cells under `HEADINGS`."""
    row, ratio = pair.b, pair.ratio
    times = [cells.milliseconds(each["mean_ms"]) for each in (pair.a, pair.b)]
    figures = [f"{ratio.value:.3f}", _interval(ratio)] if ratio else ["", ""]
    code = "the same sources" if pair.same_code and pair.verdict in ("slower", "faster") else ""
    why = "; ".join(filter(None, [pair.why, code]))
    timing = "" if row["timing"] in ("", "cold") else f" {row['timing']}"
    return [cells.title_of(row) + timing, cells.full_name(row), *times, *figures, pair.verdict, why]


def _interval(ratio: Ratio) -> str:
    """One of a few scattered trials says nothing, in many digits."""
    wide = ratio.high > _MOST_WIDE * ratio.low
    return "unknown" if wide else f"{ratio.low:.3f} - {ratio.high:.3f}"


def _sorted(pairs: Iterable[Pair]) -> list[Pair]:
    """The worst first; inside a verdict by how far the ratio is from 1."""
    return sorted(
        pairs, key=lambda pair: (ORDER.index(pair.verdict), -abs(pair.ratio.value - 1) if pair.ratio else 0)
    )


def markdown(found: Comparison, names: tuple[str, str] | None = None) -> str:
    """A page for a pull request: what changed stands open, the rest is folded. `names` are to be shown."""
    a, b = names or found.names
    lines = [f"**B = {escaped(b)} against A = {escaped(a)}**", ""]
    lines += [verdict_line(found) + ".", "", *(f"- {escaped(each)}" for each in remarks(found)), ""]
    open_, folded = _split(found)
    if open_:
        lines += [*markdown_table(HEADINGS, map(line, open_), WORDS), ""]
    if folded:
        lines += [f"<details><summary>{cells.counted(len(folded), 'other row')}</summary>", ""]
        lines += [*markdown_table(HEADINGS, map(line, folded), WORDS), "", "</details>", ""]
    lines += [f"- {escaped(each)}" for each in _missing(found)]
    return "\n".join(lines)


def _split(found: Comparison) -> tuple[list[Pair], list[Pair]]:
    pairs = _sorted(found.pairs)
    return (
        [pair for pair in pairs if pair.verdict in CHANGED],
        [pair for pair in pairs if pair.verdict not in CHANGED],
    )


def _missing(found: Comparison) -> Iterator[str]:
    for name, rows in zip("AB", found.only):
        if rows:
            named = [f"{cells.title_of(row)}: {row['variant']}" for row in rows[:_MOST_LISTED]]
            more = f" and {len(rows) - _MOST_LISTED} more" if len(rows) > _MOST_LISTED else ""
            yield f"only in {name}: {'; '.join(named)}{more}"


def print_tables(found: Comparison, every: bool = False, console: Console | None = None) -> None:
    """What changed and what is ambiguous, or every row, on standard output."""
    console = console or Console()
    console = console if console.is_terminal else Console(width=_PIPED, file=console.file)
    console.print(Text(f"A {found.names[0]}\nB {found.names[1]}"), soft_wrap=True)
    for each in remarks(found):
        console.print(Text(each, style="yellow"), soft_wrap=True)
    shown = [pair for pair in _sorted(found.pairs) if every or pair.verdict in (*CHANGED, "ambiguous")]
    grid = _grid(shown)
    natural = console.measure(grid, options=console.options.update(max_width=_PIPED)).maximum
    if natural > console.width:
        _print_narrow(shown, console)
    elif shown:
        console.print(grid)
    for each in _missing(found):
        console.print(Text(each, style="dim"), soft_wrap=True)
    console.print(
        Text(verdict_line(found), style="bold red" if found.regressions() else "bold"), soft_wrap=True
    )


def _print_narrow(pairs: Sequence[Pair], console: Console) -> None:
    """A few lines for each pair, where a line of the table is wider than the terminal."""
    for pair in pairs:
        case, variant, a, b, ratio, interval, verdict, remark = line(pair)
        change = f"B / A {ratio} ({interval})" if ratio else ""
        times = f"{a or 'untimed'} -> {b or 'untimed'}"
        console.print(Text(f"{case}: {variant}", style="bold"))
        told = ", ".join(filter(None, [times, change]))
        console.print(Text.assemble("  ", (verdict, COLOURS.get(verdict, "")), f"  {told}"))
        if remark:
            console.print(Padding(Text(remark, style="dim"), (0, 0, 0, 4)))


def _grid(pairs: Sequence[Pair]) -> Grid:
    grid = Grid(box=None, header_style="bold", pad_edge=False)
    for name in HEADINGS:
        justify = "left" if name in WORDS else "right"
        grid.add_column(name, justify=justify, no_wrap=name not in ("case", "remark"))
    for pair in pairs:
        styles = {"verdict": COLOURS.get(pair.verdict, "")}
        words = zip(HEADINGS, line(pair))
        grid.add_row(*(Text(word, style=styles.get(name, "")) for name, word in words))
    return grid
