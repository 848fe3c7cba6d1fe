"""Jobs of a sweep that did not come to their end, wherever they ran: named, and their rows written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runner.model import Refusal, Settings
from runner.record import lost
from runner.record.folder import writing

WORD = "failed.txt"  # below a job's folder: why its process did not come to its end
_OUTSIDE = "it was ended from outside"
_ABSENT = "it never began, or was ended from outside at once"


def leave_word(folder: Path, why: str) -> None:
    (folder / WORD).write_text(why + "\n", encoding="utf-8")


def forget(folder: Path) -> None:
    """A job that was carried on with, to its end."""
    with writing(folder):
        (folder / WORD).unlink(missing_ok=True)


def rows_in(folder: Path) -> int:
    """How many rows a job has written so far: its cells hold no line ends."""
    path = folder / "results.csv"
    return max(path.read_bytes().count(b"\n") - 1, 0) if path.is_file() else 0


def find(sweep: Path, expected: Mapping[str, int]) -> dict[str, str]:
    """What is known of each job that did not come to its end. `expected`: rows by its folder's name."""
    found = {}
    for name, planned in expected.items():
        folder = sweep / name
        there = rows_in(folder)
        said = (folder / WORD).read_text(encoding="utf-8") if (folder / WORD).is_file() else ""
        if there < planned or said:
            why = " ".join(said.split()) or (_OUTSIDE if (folder / "results.csv").is_file() else _ABSENT)
            found[name] = f"{why}; it had written {there} of its {planned} rows"
    return found


def make_up(sweep: Path, jobs: Mapping[str, Settings], found: Mapping[str, str]) -> list[str]:
    """Write the rows that those jobs lack: into each one's own table. Sentences on what cannot be done."""
    from runner.report import report

    refused, rows = [], 0
    for name, why in found.items():
        try:
            words = f"the process of this row's job ended before it came to it: {why}"
            rows += lost.make_up(sweep / name, jobs[name], words)
            with writing(sweep / name):
                report.write(sweep / name)
        except Refusal as refusal:  # it is alive after all, or the disk is full
            refused.append(str(refusal))
    return refused + ([f"resume={sweep} runs those rows"] if rows else [])
