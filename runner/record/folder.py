"""The run's folder: made exclusively, each row appended and flushed as soon as it is known."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from runner.files import ROOT, write_whole
from runner.model import Refusal, Settings
from runner.record import tables
from runner.record.columns import COLUMNS, LOST, SAMPLE_COLUMNS, TRAP_COLUMNS
from runner.record.tables import Table

_SEED = re.compile(r"^seed: \d+$", re.MULTILINE)  # kept from variants as long as they run
CEILINGS = "ceilings.json"
_LOG_BYTES = 4 << 20  # of what variants print, by run
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
        if isinstance(error, IsADirectoryError):
            raise Refusal(
                f"output: {error.filename} is a folder, and a file of the run belongs there"
            ) from error
        raise Refusal(
            f"output: {folder} can no longer be written ({error.strerror or error}); what it holds is whole: "
            "make space, or set output=<a folder with space>"
        ) from error


def _removed(folder: Path) -> str:
    return f"output: the folder was removed while the run worked: {folder}"


class Log:
    """`run.log`: what workers print, up to a size, and what the runner says of their work."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._left = _LOG_BYTES

    def write(self, line: bytes) -> None:
        """Of a worker's output. Raises OSError where the disk does not take it."""
        if self._left > 0:
            self._left -= len(line)
            self._file.write(line if self._left > 0 else b"\n[more output was dropped]\n")

    def say(self, words: str) -> None:
        """A line of the runner's own. A full disk is not told here: the rows say so."""
        with contextlib.suppress(OSError):
            self._file.write(f"{words}\n".encode())

    def close(self) -> None:
        self._file.close()


class Record:
    """Writes one run folder. `alone` is False for a job, whose folder's name is unique in its sweep only.

    A folder that has tables already is carried on with: `rows` are then those that it has, as text, but for
    lost ones (stage `job`), which are to be found again.
    Each method raises Refusal where the disk does not take what it writes; tables keep whole lines.
    """

    def __init__(self, folder: Path, settings: Settings, alone: bool = True) -> None:
        self.folder = folder
        self.run_id = folder.name if alone else f"{folder.parent.name}/{folder.name}"
        with writing(folder):
            self.rows = _found(folder / "results.csv")
            self._done = {row["row_id"]: row for row in self.rows}
            for name in ("samples.csv", "traps.csv"):  # of rows that were lost
                tables.keep_only(folder / name, self._done)
            hidden = _SEED.sub("seed: null  # until the run is done", settings.resolved_yaml)
            write_whole(folder / "config.yaml", hidden)
            self.log = Log(folder / "run.log")
            self._results = Table(folder / "results.csv", COLUMNS)
            self._samples = Table(folder / "samples.csv", SAMPLE_COLUMNS)

    @property
    def fresh(self) -> int:
        """How many rows were added."""
        return len(self.rows) - len(self._done)

    def row_of(self, row_id: str) -> dict[str, Any] | None:
        """The row of that id which the folder had before; None where it is still to be found."""
        return self._done.get(row_id)

    def environment(self, settings: Settings, worker: dict[str, Any]) -> None:
        """`environment.json`: command, host, versions and the worker's device.

        Where it is there already, the time is added. Raises Refusal where the device is another one.
        """
        path = self.folder / "environment.json"
        facts = {"run_id": self.run_id, "command": list(settings.command), "config_dir": _dir_of(settings)}
        facts |= {"experiment": settings.experiment, "why": settings.why} | host_facts() | worker
        with writing(self.folder):
            if path.exists():
                facts = _resumed(json.loads(path.read_text("utf-8")), facts, self.folder)
            write_whole(path, json.dumps(facts, indent=2, sort_keys=True, default=str) + "\n")

    def ceilings(self, known: dict[str, Any]) -> None:
        """`ceilings.json`: what the limits of this run were made from."""
        with writing(self.folder):
            write_whole(self.folder / CEILINGS, json.dumps(known, sort_keys=True) + "\n")

    def add(self, row: dict[str, Any]) -> None:
        """Write a row. An over-long reason or note is cut, in `row` too."""
        if not self._results.path.exists():  # an open file takes rows also when it is deleted
            raise Refusal(_removed(self.folder))
        for name in ("reason", "note"):
            row[name] = _cut(tables.printable(row[name]))
        self.rows.append(row)
        with writing(self.folder):
            self._results.write(row | {"seed": ""})  # told when nothing runs any more
            self._results.flush()

    def samples(
        self, row: dict[str, Any], series: dict[str, Any], sm_mhz: list[float | None], judged: set[int]
    ) -> None:
        """Every raw trial of a row, in time order; `sm_mhz` by round; `judged`: rounds."""
        fixed = {"row_id": row["row_id"], "timing": row["timing"]}
        names = ("rounds", "turns", "start_ns", "device_us", "host_us")
        for round_, turn, start, device, host in zip(*(series[name] for name in names)):
            clock = sm_mhz[round_] if round_ < len(sm_mhz) else None
            times = {"round": round_, "turn": turn, "start_ns": start, "device_us": device, "host_us": host}
            self._samples.write({**fixed, **times, "sm_mhz": clock, "checked": round_ in judged})
        with writing(self.folder):
            self._samples.flush()

    def traps(self, row: dict[str, Any], readings: list[tuple[str, str, float]]) -> None:
        """`traps.csv`: what each way of timing a row read. The first reading is the right one."""
        path, right = self.folder / "traps.csv", readings[0][2]
        with writing(self.folder):
            table = Table(path, TRAP_COLUMNS)
            for way, lesson, reads in readings:
                cells = (row["row_id"], row["variant"], way, reads, reads / right, lesson)
                table.write(dict(zip(TRAP_COLUMNS, cells)))
            table.flush()
            table.close()

    def table(self, name: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        """Further rows of another table of the run; it is begun with its first ones."""
        with writing(self.folder):
            table = Table(self.folder / name, columns)
            for row in rows:
                table.write(row)
            table.flush()
            table.close()

    def tell_seed(self, settings: Settings) -> None:
        """When nothing runs any more: the seed, into the rows, the configuration and the environment."""
        path = self.folder / "environment.json"
        with writing(self.folder):
            tables.replace(self._results.path, COLUMNS, self._known(str(settings.seed)))
            write_whole(self.folder / "config.yaml", settings.resolved_yaml)
            if path.exists():
                facts = json.loads(path.read_text("utf-8")) | {"seed": settings.seed}
                write_whole(path, json.dumps(facts, indent=2, sort_keys=True) + "\n")

    def _known(self, seed: str) -> Iterator[dict[str, Any]]:
        """All rows as they are known here: variants, too, can write into the folder."""
        for row in self.rows:
            kept = row if row["row_id"] in self._done else tables.cells(row, COLUMNS)
            yield kept | {"seed": seed}

    def close(self) -> None:
        self._results.close()
        self._samples.close()
        self.log.close()


def _found(path: Path) -> list[dict[str, Any]]:
    """The rows of a table; those that a dead job had left to others are taken out of it."""
    rows = tables.rows(path, COLUMNS)
    kept = [row for row in rows if row["stage"] != LOST]
    if len(kept) < len(rows):
        tables.replace(path, COLUMNS, kept)
    return kept


_DEVICE = ("device_name", "device_uuid", "driver", "torch", "torch_cuda", "torch_git", "triton")


def _resumed(before: dict[str, Any], now: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The facts as they were, with one more time. A worker that did not start left none of its own."""
    if "torch" not in before:
        return now
    other = [key for key in _DEVICE if before.get(key) != now.get(key)]
    if other:
        what = ", ".join(f"{key} was {before.get(key)} and is {now.get(key)}" for key in other)
        raise Refusal(f"resume={folder}: since it was started {what}; put that back, or start a new run")
    return before | {"resumed_utc": [*before.get("resumed_utc", []), now["time_utc"]]}


def _dir_of(settings: Settings) -> str:
    """The folder that was given as `--config-dir`, as far as the run took anything from it; else empty."""
    files = [Path(name) for name in settings.config_files if Path(name).name != "config.yaml"]
    folders = {path.parent.parent for path in files}  # <dir>/<group>/<name>.yaml
    return next((str(one) for one in sorted(folders) if not one.is_relative_to(ROOT / "conf")), "")


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
    """What is installed: not setuptools' own copies, which importing it puts on the path."""
    path = [folder for folder in sys.path if Path(folder).name != "_vendor"]
    return {d.metadata["Name"]: d.version for d in distributions(path=path) if d.metadata["Name"]}


@functools.cache
def git_state() -> dict[str, Any]:
    """Commit of this repository and whether files differ from it; empty outside git."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "modified": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
