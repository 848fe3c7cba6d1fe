"""Join the tables of runs into one: `python -m runner.collect <folders>`."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from runner.files import write_whole
from runner.model import Refusal
from runner.record import kept
from runner.record.columns import COLUMNS, SAMPLE_COLUMNS
from runner.record.folder import claim, writing
from runner.record.joined import common, same_ceilings
from runner.record.kept import Row, Table
from runner.report import report
from runner.report.cells import counted

SOURCES = ("run_id", "table", "device", "host", "time_utc", "commit", "rows", "kept")
ABOUT = """\
Joins the tables of runs and sweeps into one folder: results.csv, samples.csv, environment.json, report.md,
and sources.csv, which says what came from where. Of an experiment that several runs measured on one kind of
device the newest row counts.
"""


def collect(names: Sequence[str], into: Path, samples: bool = True) -> tuple[int, int]:
    """Join what the names stand for (see `kept.tables`) into a folder: (rows kept, rows read).

    Raises Refusal on another schema version and where the folder cannot be written.
    """
    tables = list({table.path.resolve(): table for name in names for table in kept.tables(name)}.values())
    whole = [row for table in tables for row in table.rows]
    rows = kept.newest(whole)
    with writing(into):
        _write(into / "results.csv", COLUMNS, ([row[name] for name in COLUMNS] for row in rows))
        if samples:
            _write(into / "samples.csv", SAMPLE_COLUMNS, _samples(tables, {row["row_id"] for row in rows}))
        _write(into / "sources.csv", SOURCES, _sources(tables, Counter(row["run_id"] for row in rows)))
        text = json.dumps(common(_facts(tables)), indent=2, sort_keys=True)
        write_whole(into / "environment.json", text + "\n")
        same_ceilings([table.path.parent for table in tables], into)
        report.write(into)
    return len(rows), len(whole)


def _write(path: Path, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    write_whole(path, text.getvalue())


def _samples(tables: Iterable[Table], wanted: set[str]) -> Iterator[list[str]]:
    """The lines of the rows that were kept; a run that two tables hold gives its samples once."""
    console = Console(stderr=True)
    told = track(list(tables), "samples", console=console, transient=True, disable=not console.is_terminal)
    for table in told:
        path = table.path.with_name("samples.csv")
        own = {row["row_id"] for row in table.rows} & wanted
        wanted = wanted - own
        if path.is_file():
            with open(path, newline="", encoding="utf-8") as file:
                reader = csv.reader(file)
                if tuple(next(reader, SAMPLE_COLUMNS)) != SAMPLE_COLUMNS:
                    raise Refusal(f"{path} was written by another version of the runner: its header differs")
                yield from (line for line in reader if line and line[0] in own)


def _runs(tables: Iterable[Table]) -> Iterator[tuple[Table, str, list[Row]]]:
    for table in tables:
        runs: dict[str, list[Row]] = {}
        for row in table.rows:
            runs.setdefault(row["run_id"], []).append(row)
        for run_id, rows in runs.items():
            yield table, run_id, rows


def _facts(tables: Sequence[Table]) -> dict[str, dict[str, Any]]:
    return {run: {n: table.fact(rows[0], n) for n in table.names()} for table, run, rows in _runs(tables)}


def _sources(tables: Sequence[Table], kept_rows: Counter[str]) -> Iterator[list[Any]]:
    for table, run, rows in _runs(tables):
        host, when, git = (table.fact(rows[0], name) for name in ("host", "time_utc", "git"))
        facts = [rows[0]["device"], host, when, (git or {}).get("commit", "")]
        yield [run, table.path, *facts, len(rows), kept_rows[run]]


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 2 with a sentence."""
    parser = argparse.ArgumentParser("python -m runner.collect", description=ABOUT)
    parser.add_argument("runs", nargs="+", help="folders of runs or sweeps, files, or names below outputs")
    parser.add_argument("--into", type=Path, help="the folder to make; outputs/collected/<time> by default")
    parser.add_argument(
        "--no-samples", action="store_true", help="leave samples.csv out: it is the large one"
    )
    asked = parser.parse_args(argv)
    try:
        into = _made(asked.into)
        taken, read = collect(asked.runs, into, not asked.no_samples)
    except Refusal as refusal:
        print(f"runner: {refusal}", file=sys.stderr)
        return 2
    older = f", {counted(read - taken, 'older row')} left out" if read > taken else ""
    print(f"{counted(taken, 'row')}{older}: {into}")
    return 0


def _made(into: Path | None) -> Path:
    """The folder, new or empty."""
    if into is None:
        return claim(Path("outputs") / "collected")
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(f"--into {into}: cannot be made ({error.strerror})") from error
    if any(into.iterdir()):
        raise Refusal(f"--into {into}: holds files already; name a new folder")
    return into


if __name__ == "__main__":
    sys.exit(main())
