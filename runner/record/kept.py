"""What runs left behind, read again: the rows, raw samples and facts of folders, files or published sets."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.files import ROOT, read_csv
from runner.model import Refusal
from runner.record.columns import COLUMNS, FAILED, LOST, SCHEMA_VERSION

# What makes two rows the same experiment, run twice.
IDENTITY = ("op", "variant", "params", "attrs", "shape", "layout", "dtype", "direction")
Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    """One `results.csv` and what lies beside it."""

    path: Path
    rows: list[Row] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)  # environment.json; empty where there is none

    def fact(self, row: Row, name: str) -> Any:
        """A fact of a row's run: where the runs of a table differ, they are told apart by name or job."""
        own, job = self.facts.get("differs", {}).get(name, {}), row["run_id"].partition("/")[2]
        return own.get(row["run_id"], own.get(job, self.facts.get(name)))

    def names(self) -> list[str]:
        """Of all facts, those that runs differ in among them."""
        return sorted({*self.facts, *self.facts.get("differs", {})} - {"differs"})

    def samples(self) -> dict[str, list[float]]:
        """Device times in microseconds by row, in time order; none where the file was not kept."""
        path, found = self.path.with_name("samples.csv"), {}
        if path.is_file():
            with open(path, newline="", encoding="utf-8") as file:
                for line in csv.DictReader(file):
                    found.setdefault(line["row_id"], []).append(float(line["device_us"]))
        return found


def tables(name: str) -> list[Table]:
    """The tables that a name stands for: a file, a folder of one run or of many, a name below `outputs`.

    Raises Refusal where there is none, or one that this version cannot read.
    """
    return [read(path) for path in _paths(name)]


def _paths(name: str) -> list[Path]:
    asked = Path(name).expanduser()
    places = [asked, Path("outputs") / name, ROOT / "outputs" / name]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise Refusal(f"{name}: there is no such file or folder, here or in outputs")
    if found.is_file():
        return [found]
    paths = sorted(_below(found))
    if not paths:
        raise Refusal(f"{name}: no results.csv in it; name the folder of a run, of a sweep, or of several")
    return paths


def _below(folder: Path) -> Iterator[Path]:
    """The topmost tables: a sweep's own has its jobs' rows."""
    if (folder / "results.csv").is_file():
        yield folder / "results.csv"
        return
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            yield from _below(child)


def read(path: Path) -> Table:
    """One table. Raises Refusal on a header or a schema version that is not this one's."""
    try:
        header, rows = read_csv(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Refusal(f"{path}: cannot be read ({error})") from error
    if header != COLUMNS:
        raise Refusal(f"{path}: not a results.csv of this version of the runner: its header differs")
    versions = sorted({row["schema_version"] for row in rows} - {str(SCHEMA_VERSION)})
    if versions:
        raise Refusal(f"{path}: schema version {', '.join(versions)}; this runner reads {SCHEMA_VERSION}")
    beside = path.with_name("environment.json")
    return Table(path, rows, _facts(beside) if beside.is_file() else {})


def _facts(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Refusal(f"{path}: cannot be read ({error})") from error


def experiment_of(row: Row) -> tuple[str, ...]:
    """What a row measured, whoever measured it and when."""
    return tuple(row[name] for name in IDENTITY)


def newest(rows: Iterable[Row]) -> list[Row]:
    """One row of each experiment and timing, in their order: that of the newest run.

    A failure speaks for every timing: today's takes the place of yesterday's times. A row that was not to be
    timed (checked, skipped), or that its job did not come to, counts only where no other is. Run names begin
    with their UTC time.
    """
    rows = list(rows)
    there: set[tuple[str, ...]] = set()  # experiments, also with their timing
    ended: set[tuple[str, ...]] = set()  # experiments of which older rows no longer count
    chosen, idle = [], []
    for i in sorted(range(len(rows)), key=lambda i: rows[i]["run_id"], reverse=True):
        row = rows[i]
        place = (row["device"], *experiment_of(row))
        if not row["timing"] and (row["status"] not in FAILED or row["stage"] == LOST):
            idle.append((i, place))
        elif place not in ended:
            key = (*place, row["timing"]) if row["timing"] else place
            ended |= set() if row["timing"] else {place}
            if key not in there:
                there |= {place, key}
                chosen.append(i)
    seen = {experiment_of(rows[i]) for i in chosen}
    for i, place in sorted(idle, key=lambda one: rows[one[0]]["stage"] == LOST):  # those say least
        lost = rows[i]["stage"] == LOST and place[1:] in seen  # its device may not be known
        if place not in there and not lost:
            there.add(place)
            seen.add(place[1:])
            chosen.append(i)
    return [rows[i] for i in sorted(chosen)]
