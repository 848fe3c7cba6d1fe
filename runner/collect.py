"""Join the tables of several runs into one."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from runner.columns import COLUMNS, SAMPLE_COLUMNS
from runner.model import Refusal


def collect_jobs(sweep: Path) -> None:
    """`results.csv` and `samples.csv` of a sweep from those of its jobs, in the jobs' order."""
    jobs = sorted((p for p in sweep.iterdir() if (p / "results.csv").is_file()), key=_job_number)
    join([job / "results.csv" for job in jobs], sweep / "results.csv", COLUMNS)
    join([job / "samples.csv" for job in jobs], sweep / "samples.csv", SAMPLE_COLUMNS)


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
