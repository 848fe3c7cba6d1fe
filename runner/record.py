"""The run's folder: made exclusively, each row appended and flushed as soon as it is known."""

from __future__ import annotations

import csv
import functools
import json
import os
import platform
import socket
import subprocess
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from runner.columns import COLUMNS, SAMPLE_COLUMNS, TRAP_COLUMNS, cell
from runner.model import Refusal, Settings

_ROOT = Path(__file__).resolve().parent.parent


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


class Record:
    """Writes one run folder. `alone` is False for a job, whose folder's name is unique in its sweep only."""

    def __init__(self, folder: Path, settings: Settings, alone: bool = True) -> None:
        self.folder = folder
        self.run_id = folder.name if alone else f"{folder.parent.name}/{folder.name}"
        self.rows: list[dict[str, Any]] = []
        (folder / "config.yaml").write_text(settings.resolved_yaml, encoding="utf-8")
        self.log = open(folder / "run.log", "ab")  # noqa: SIM115 - closed by close()
        self._results = _Table(folder / "results.csv", COLUMNS)
        self._samples = _Table(folder / "samples.csv", SAMPLE_COLUMNS)

    def environment(self, settings: Settings, worker: dict[str, Any]) -> None:
        """`environment.json`: command, host, versions and the worker's device."""
        facts = {"run_id": self.run_id, "command": list(settings.command), "seed": settings.seed}
        text = json.dumps(facts | host_facts() | worker, indent=2, sort_keys=True, default=str)
        (self.folder / "environment.json").write_text(text + "\n", encoding="utf-8")

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self._results.write(row)

    def samples(self, row: dict[str, Any], series: dict[str, Any], sm_mhz: list[float | None]) -> None:
        """Every raw trial of a row, in time order; `sm_mhz` by round."""
        fixed = {"row_id": row["row_id"], "timing": row["timing"]}
        names = ("rounds", "turns", "start_ns", "device_us", "host_us")
        last = len(series["rounds"]) - 1
        for i, (round_, turn, start, device, host) in enumerate(zip(*(series[name] for name in names))):
            clock = sm_mhz[round_] if round_ < len(sm_mhz) else None
            times = {"round": round_, "turn": turn, "start_ns": start, "device_us": device, "host_us": host}
            checked = {"sm_mhz": clock, "checked": "true" if i == last else "false"}
            self._samples.write(fixed | times | checked, flush=False)
        self._samples.flush()

    def traps(self, row: dict[str, Any], readings: list[tuple[str, str, float]]) -> None:
        """`traps.csv`: what each way of timing a row read. The first reading is the right one."""
        path = self.folder / "traps.csv"
        new = not path.exists()
        with open(path, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(TRAP_COLUMNS)
            right = readings[0][2]
            for way, lesson, reads in readings:
                cells = (row["row_id"], row["variant"], way, reads, reads / right, lesson)
                writer.writerow([cell(value) for value in cells])

    def close(self) -> None:
        self._results.close()
        self._samples.close()
        self.log.close()


class _Table:
    """A CSV file that is written row by row; cells that a spreadsheet would run stay text."""

    def __init__(self, path: Path, columns: tuple[str, ...] | list[str]) -> None:
        self._columns = columns
        self._file = open(path, "x", newline="", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(columns)
        self.flush()

    def write(self, row: dict[str, Any], flush: bool = True) -> None:
        self._writer.writerow([_inert(row.get(name)) for name in self._columns])
        if flush:
            self.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _inert(value: Any) -> str:
    """A cell as text. Words that start like a spreadsheet formula get an apostrophe in front."""
    text = " ".join(cell(value).split("\n")).replace("\r", " ")
    return "'" + text if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t") else text


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
