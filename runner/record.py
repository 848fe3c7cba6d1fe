"""The run's folder: made exclusively, each row appended and flushed as soon as it is known."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, BinaryIO

from runner.columns import COLUMNS, SAMPLE_COLUMNS, TRAP_COLUMNS, cell
from runner.model import Refusal, Settings

_ROOT = Path(__file__).resolve().parent.parent
_MOST_WORDS = 2000  # characters of a reason or a note


def stamp() -> str:
    """A folder name that no other process makes: UTC time to the microsecond, host, process."""
    now = datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S-%f")
    host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    return f"{now}_{host}_{os.getpid()}"


def claim(parent: Path) -> Path:
    """Make a new folder under `parent` that is ours alone. Raises Refusal where none can be made."""
    while True:
        folder = parent / stamp()
        try:
            folder.mkdir(parents=True, exist_ok=False)
            return folder
        except FileExistsError:
            if not parent.is_dir():
                raise Refusal(f"output: {parent} is in the way and is not a folder") from None
        except OSError as error:
            raise Refusal(
                f"output: {folder} cannot be made ({error.strerror}): set output=<a writable folder>"
            ) from None


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Around what writes into a run's folder: where the disk does not take it, a Refusal says so."""
    try:
        yield
    except OSError as error:
        if not folder.is_dir():
            raise Refusal(_removed(folder)) from error
        raise Refusal(
            f"output: {folder} can no longer be written ({error.strerror or error}); what it holds is whole: "
            "make space, or set output=<a folder with space>"
        ) from error


def _removed(folder: Path) -> str:
    return f"output: the folder was removed while the run worked: {folder}"


def write_whole(path: Path, text: str) -> None:
    """Make or replace a text file at once: a disk that fills up leaves what was there. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class Record:
    """Writes one run folder. `alone` is False for a job, whose folder's name is unique in its sweep only.

    Each method raises Refusal where the disk does not take what it writes; tables keep whole lines.
    """

    def __init__(self, folder: Path, settings: Settings, alone: bool = True) -> None:
        self.folder = folder
        self.run_id = folder.name if alone else f"{folder.parent.name}/{folder.name}"
        self.rows: list[dict[str, Any]] = []
        with writing(folder):
            write_whole(folder / "config.yaml", settings.resolved_yaml)
            self.log = open(folder / "run.log", "ab", buffering=0)  # noqa: SIM115 - closed by close()
            self._results = _Table(folder / "results.csv", COLUMNS)
            self._samples = _Table(folder / "samples.csv", SAMPLE_COLUMNS)

    def environment(self, settings: Settings, worker: dict[str, Any]) -> None:
        """`environment.json`: command, host, versions and the worker's device."""
        facts = {"run_id": self.run_id, "command": list(settings.command), "seed": settings.seed}
        text = json.dumps(facts | host_facts() | worker, indent=2, sort_keys=True, default=str)
        with writing(self.folder):
            write_whole(self.folder / "environment.json", text + "\n")

    def add(self, row: dict[str, Any]) -> None:
        """Write a row. An over-long reason or note is cut, in `row` too."""
        if not self._results.path.exists():  # an open file takes rows also when it is deleted
            raise Refusal(_removed(self.folder))
        for name in ("reason", "note"):
            row[name] = _cut(row[name])
        self.rows.append(row)
        with writing(self.folder):
            self._results.write(row)
            self._results.flush()

    def samples(self, row: dict[str, Any], series: dict[str, Any], sm_mhz: list[float | None]) -> None:
        """Every raw trial of a row, in time order; `sm_mhz` by round."""
        fixed = {"row_id": row["row_id"], "timing": row["timing"]}
        names = ("rounds", "turns", "start_ns", "device_us", "host_us")
        last = len(series["rounds"]) - 1
        for i, (round_, turn, start, device, host) in enumerate(zip(*(series[name] for name in names))):
            clock = sm_mhz[round_] if round_ < len(sm_mhz) else None
            times = {"round": round_, "turn": turn, "start_ns": start, "device_us": device, "host_us": host}
            checked = {"sm_mhz": clock, "checked": "true" if i == last else "false"}
            self._samples.write(fixed | times | checked)
        with writing(self.folder):
            self._samples.flush()

    def traps(self, row: dict[str, Any], readings: list[tuple[str, str, float]]) -> None:
        """`traps.csv`: what each way of timing a row read. The first reading is the right one."""
        path, right = self.folder / "traps.csv", readings[0][2]
        with writing(self.folder):
            table = _Table(path, TRAP_COLUMNS, more=path.exists())
            for way, lesson, reads in readings:
                cells = (row["row_id"], row["variant"], way, reads, reads / right, lesson)
                table.write(dict(zip(TRAP_COLUMNS, cells)))
            table.flush()
            table.close()

    def table(self, name: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        """Further rows of another table of the run; it is begun with its first ones."""
        path = self.folder / name
        with writing(self.folder):
            table = _Table(path, columns, more=path.exists())
            for row in rows:
                table.write(row)
            table.flush()
            table.close()

    def close(self) -> None:
        self._results.close()
        self._samples.close()
        self.log.close()


class _Table:
    """A CSV file that grows by whole lines; cells that a spreadsheet would run stay text."""

    def __init__(self, path: Path, columns: tuple[str, ...] | list[str], more: bool = False) -> None:
        self.path, self._columns = path, columns
        self._file = open(path, "ab" if more else "xb", buffering=0)  # noqa: SIM115 - closed by close()
        self._waiting = io.StringIO(newline="")
        self._writer = csv.writer(self._waiting, lineterminator="\n")
        if not more:
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
_PRINTED = {code: f"\\x{code:02x}" for code in _CONTROLS} | dict.fromkeys(map(ord, _BREAKS), " ")


def _inert(value: Any) -> str:
    """A cell as one line of text. Words that start like a spreadsheet formula get an apostrophe in front."""
    text = cell(value).translate(_PRINTED)
    return "'" + text if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else text


def _cut(words: str) -> str:
    return words if len(words) <= _MOST_WORDS else words[: _MOST_WORDS - 3] + "..."


def host_facts() -> dict[str, Any]:
    """What the parent knows of the machine, without torch."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "time_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_state(),
        "packages": _packages(),
        "environment_variables": {k: v for k, v in os.environ.items() if k.startswith(_KEPT_PREFIXES)},
    }


_KEPT_PREFIXES = ("CUDA_", "TORCH", "TRITON", "OMP_", "MKL_", "RUNNER_", "NVIDIA_VISIBLE", "NVIDIA_TF32")


@functools.cache  # the same for every job of a sweep
def _packages() -> dict[str, str]:
    return {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}


@functools.cache
def git_state() -> dict[str, Any]:
    """Commit of this repository and whether files differ from it; empty outside git."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "modified": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
