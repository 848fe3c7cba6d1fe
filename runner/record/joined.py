"""The tables of a sweep's jobs as one table, and what their environments have in common."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from runner.files import write_whole
from runner.model import Refusal
from runner.record.columns import COLUMNS, SAMPLE_COLUMNS
from runner.record.folder import CEILINGS


def collect_jobs(sweep: Path) -> None:
    """The tables and the environment of a sweep from those of its jobs, in the jobs' order.

    A job that was interrupted early lacks files: what it has is taken.
    """
    jobs = sorted((p for p in sweep.iterdir() if (p / "results.csv").is_file()), key=_job_number)
    join([job / "results.csv" for job in jobs], sweep / "results.csv", COLUMNS)
    join([job / "samples.csv" for job in jobs], sweep / "samples.csv", SAMPLE_COLUMNS)
    same_ceilings(jobs, sweep)
    files = {job.name: job / "environment.json" for job in jobs}
    facts = {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.is_file()}
    text = json.dumps(common(facts), indent=2, sort_keys=True)
    write_whole(sweep / "environment.json", text + "\n")


def common(facts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What all jobs agree on as it is; what they differ in by job, under `differs`."""
    keys = dict.fromkeys(key for one in facts.values() for key in one)
    values = {key: [one.get(key) for one in facts.values()] for key in keys}
    same = {key: found[0] for key, found in values.items() if all(value == found[0] for value in found)}
    differs = {key: dict(zip(facts, found)) for key, found in values.items() if key not in same}
    return same | ({"differs": differs} if differs else {})


def same_ceilings(folders: Iterable[Path], into: Path) -> None:
    """The ceilings of runs on one device; those of several devices would be nobody's."""
    texts = {(folder / CEILINGS).read_text("utf-8") for folder in folders if (folder / CEILINGS).is_file()}
    if len({json.loads(text)["device"] for text in texts}) == 1:
        write_whole(into / CEILINGS, max(texts))


def _job_number(folder: Path) -> tuple[int, str]:
    number = folder.name.partition("_")[0]
    return (int(number) if number.isdecimal() else -1, folder.name)


def join(tables: Iterable[Path], joined: Path, columns: Sequence[str]) -> None:
    """Concatenate CSV files of one header; missing and empty ones add nothing. Raises Refusal on another."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for table in filter(Path.is_file, tables):
        with open(table, newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            if next(reader, list(columns)) != list(columns):
                raise Refusal(f"{table} was written by another version of the runner: its header differs")
            writer.writerows(reader)
    write_whole(joined, text.getvalue())
