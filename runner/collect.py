"""Join the tables of several runs into one."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runner.columns import COLUMNS, SAMPLE_COLUMNS
from runner.model import Refusal


def collect_jobs(sweep: Path) -> None:
    """The tables and the environment of a sweep from those of its jobs, in the jobs' order."""
    jobs = sorted((p for p in sweep.iterdir() if (p / "results.csv").is_file()), key=_job_number)
    join([job / "results.csv" for job in jobs], sweep / "results.csv", COLUMNS)
    join([job / "samples.csv" for job in jobs], sweep / "samples.csv", SAMPLE_COLUMNS)
    facts = {job.name: json.loads((job / "environment.json").read_text("utf-8")) for job in jobs}
    text = json.dumps(_common(facts), indent=2, sort_keys=True)
    (sweep / "environment.json").write_text(text + "\n", encoding="utf-8")


def _common(facts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What all jobs agree on as it is; what they differ in by job, under `differs`."""
    keys = dict.fromkeys(key for one in facts.values() for key in one)
    values = {key: [one.get(key) for one in facts.values()] for key in keys}
    same = {key: found[0] for key, found in values.items() if all(value == found[0] for value in found)}
    differs = {key: dict(zip(facts, found)) for key, found in values.items() if key not in same}
    return same | ({"differs": differs} if differs else {})


def _job_number(folder: Path) -> tuple[int, str]:
    number = folder.name.partition("_")[0]
    return (int(number) if number.isdecimal() else -1, folder.name)


def join(tables: Iterable[Path], joined: Path, columns: list[str]) -> None:
    """Concatenate CSV files of one header. Raises Refusal on another header."""
    with open(joined, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        for table in tables:
            with open(table, newline="", encoding="utf-8") as file:
                reader = csv.reader(file)
                if next(reader) != list(columns):
                    raise Refusal(f"{table} was written by another version of the runner: its header differs")
                writer.writerows(reader)
