"""CSV files that grow by whole lines, and what is left of them when the process that wrote was killed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from runner.files import cell, read_csv, write_whole
from runner.model import Refusal

csv.field_size_limit(1 << 24)  # a cell of ours is far shorter


def rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The whole rows of a table, as text; none where there is no file. A torn last line is taken off.

    Raises Refusal where the header is another one, and OSError.
    """
    if not path.exists():
        return []
    _mend(path)
    header, found = read_csv(path)
    if header and header != tuple(columns):
        raise Refusal(f"{path} was written by another version of the runner: its header differs")
    return found


def keep_only(path: Path, row_ids: Container[str]) -> None:
    """Take the lines of other rows out of a table that begins with `row_id`. Raises OSError."""
    if not path.exists():
        return
    _mend(path)
    with open(path, encoding="utf-8", newline="") as file:
        header = file.readline()
        lines = list(file)
    kept = [line for line in lines if line.partition(",")[0] in row_ids]
    if len(kept) < len(lines):
        write_whole(path, header + "".join(kept))


def replace(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """The table anew, of cells as `rows` and `cells` give them. Raises OSError."""
    whole = io.StringIO(newline="")
    writer = csv.writer(whole, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row[name] for name in columns] for row in rows)
    write_whole(path, whole.getvalue())


def cells(row: dict[str, Any], columns: Sequence[str]) -> dict[str, str]:
    """A row as its table holds it."""
    return {name: _inert(row.get(name)) for name in columns}


def printable(text: str) -> str:
    """The text's lines, none of which can move a terminal's cursor or turn the direction of its words."""
    return "\n".join(line.translate(_PRINTED) for line in text.split("\n"))


def _mend(path: Path) -> None:
    """Rows are appended whole, but a write of many that is killed may leave a part."""
    with open(path, "r+b") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)


class Table:
    """A CSV file that grows by whole lines; cells that a spreadsheet would run stay text."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self._columns = path, columns
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._waiting = io.StringIO(newline="")
        self._writer = csv.writer(self._waiting, lineterminator="\n")
        if not os.fstat(self._file.fileno()).st_size:
            self._writer.writerow(columns)
            self.flush()

    def write(self, row: dict[str, Any]) -> None:
        """Keep a row until the next flush."""
        self._writer.writerow([_inert(row.get(name)) for name in self._columns])

    def flush(self) -> None:
        """Put what was kept into the file: all of it, or nothing and OSError."""
        data = self._waiting.getvalue().encode("utf-8", errors="backslashreplace")
        self._waiting.seek(0)
        self._waiting.truncate()
        _append(self._file, data)

    def close(self) -> None:
        self._file.close()


def _append(file: BinaryIO, data: bytes) -> None:
    size = os.fstat(file.fileno()).st_size
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.truncate(size)  # a full disk takes a part first
        file.seek(size)
        raise


_BREAKS = "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"  # of lines, for one reader or another
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_TURNS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)  # the direction of words
_PRINTED = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _TURNS}
_PRINTED |= dict.fromkeys(map(ord, _BREAKS), " ")


def _inert(value: Any) -> str:
    """A cell as one line of text. Words that start like a spreadsheet formula get an apostrophe in front."""
    if value is None or isinstance(value, (int, float)):
        return cell(value)
    text = cell(value).translate(_PRINTED)
    return "'" + text if isinstance(value, str) and value.lstrip()[:1] in ("=", "+", "-", "@") else text
