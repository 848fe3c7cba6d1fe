"""What every stage writes with: canonical text, cells of CSV, whole files; and where the repository is."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def canonical(value: Any) -> str:
    """JSON with sorted keys: how lists and dicts are hashed and written."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def short_hash(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:12]


def cell(value: Any) -> str:
    """One CSV cell: JSON for lists and dicts, lower-case booleans, 9 digits for floats."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return canonical(value)
    return "" if value is None else str(value)


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Make or replace a text file at once: a disk that fills up leaves what was there. Raises OSError.

    `mode` is cut by the umask.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_WRONLY, mode))
        draft.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_csv(path: Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The columns and rows of a table, also of one that a spreadsheet saved with a mark in front."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        return tuple(reader.fieldnames or ()), rows


def write_csv(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A small CSV; floats with 6 digits."""
    names = tuple(columns)
    with open(path, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_rounded(row.get(name, "")) for name in names] for row in rows)


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else cell(value)
