"""A sweep's jobs in other processes, where one of Hydra's launchers takes them: joblib, Ray, Slurm.

The jobs go as they were composed and validated when the sweep began. Each runs in a process of its own
(`python -m runner.command.elsewhere`), so that one that dies costs its rows only, whatever launched it.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from runner.command import lost
from runner.files import short_hash
from runner.model import Refusal, Settings

BASIC = "BasicLauncher"
_LOOK_S = 1.0  # how often a watch looks
_JOBS = ".jobs"  # below a sweep's folder: its jobs as they were composed
_NO_ACCOUNTING = (
    "Slurm's accounting (sacct) does not answer: a job that is killed is then never seen to end, and the "
    "sweep waits for it; watch squeue, and end the sweep with Ctrl-C if its job is gone"
)
_LOCAL = (
    "hydra/launcher=submitit_local: it gives every job the same GPU or none, so their times would be worth "
    "nothing; hydra/launcher=gpus runs one job on each GPU of this machine"
)


def launcher(config: Any) -> str:
    """The launcher's class; empty for Hydra's own, which runs one job after the other in this process."""
    name = str(config.hydra.launcher.get("_target_", "")).rpartition(".")[2]
    return "" if name == BASIC else name


def other_hosts(config: Any) -> bool:
    """Whether jobs may run on other machines, whose devices nobody knows here. Joblib's run on this one."""
    return launcher(config) not in ("", "JoblibLauncher")


def faults(config: Any, known: bool) -> Iterator[str]:
    """What a launcher cannot do. `known`: the jobs are known before the first one runs."""
    target = str(config.hydra.launcher.get("_target_", ""))
    if "submitit" in target and target.endswith("LocalLauncher"):
        yield _LOCAL
    if launcher(config) and not known:
        yield "hydra/sweeper: one that chooses its jobs as it goes runs them here; leave hydra/launcher out"


def warnings(config: Any) -> Iterator[str]:
    """What to know before a sweep is given to a launcher."""
    if launcher(config) == "SlurmLauncher" and not _accounting():
        yield _NO_ACCOUNTING


def _accounting() -> bool:
    """Whether `sacct` is there and answers."""
    if shutil.which("sacct") is None:
        return False
    try:
        return subprocess.run(["sacct", "-X"], capture_output=True, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def forget(sweep: Path) -> None:
    """Every job came to its end: nobody needs them as they were composed any more."""
    shutil.rmtree(sweep / _JOBS, ignore_errors=True)


class Frozen:
    """Stands for Hydra's `load_sweep_config`; sent to another process it reads the sweep's folder."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def __call__(self, master_config: Any, sweep_overrides: Sequence[str]) -> Any:
        return self._run.load(master_config, sweep_overrides)

    def __reduce__(self) -> tuple[Any, ...]:
        folder = self._run.folder / _JOBS
        if not folder.is_dir():
            folder.mkdir()
            for key in list(self._run.jobs):
                job = self._run.load(None, key)
                (folder / short_hash(key)).write_bytes(pickle.dumps(job))
        return Thawed, (str(folder),)


class Thawed:
    """`Frozen` in a launcher's process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, master_config: Any, sweep_overrides: Sequence[str]) -> Any:
        return pickle.loads((Path(self.folder) / short_hash(tuple(sweep_overrides))).read_bytes())


def execute(settings: Settings, folder: Path, label: str) -> float | None:
    """One job in a process of its own, whatever becomes of it; the mean of its fastest row in ms."""
    command = [sys.executable, "-m", "runner.command.elsewhere"]
    done = subprocess.run(command, input=pickle.dumps((settings, folder, label)))
    if done.returncode and not (folder / lost.WORD).exists():
        lost.leave_word(folder, _ending(done.returncode))
    return _fastest(folder)


def _ending(code: int) -> str:
    return f"its process ended with code {code}" if code > 0 else f"its process died of signal {-code}"


def _fastest(folder: Path) -> float | None:
    from runner.report import report

    if not (folder / "results.csv").is_file():
        return None
    return min((float(row["mean_ms"]) for row in report.read(folder) if row["mean_ms"]), default=None)


class Watch:
    """Shows how far the jobs are, from the rows in their folders: what they print goes somewhere else."""

    def __init__(self, sweep: Path, expected: Mapping[str, int]) -> None:
        self._sweep, self._expected = sweep, dict(expected)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _follow(self) -> None:
        console, planned = Console(stderr=True), sum(self._expected.values())
        columns = (BarColumn(16), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task, told = bar.add_task("", total=planned), -1
            ended = False
            while not ended:
                ended = self._end.wait(_LOOK_S)  # and looks once more
                there = {name: min(lost.rows_in(self._sweep / name), n) for name, n in self._expected.items()}
                done, rows = sum(there[name] == n for name, n in self._expected.items()), sum(there.values())
                words = f"{done} of {len(there)} jobs are done"
                bar.update(task, completed=rows, description=words)
                if done != told and not console.is_terminal:
                    print(f"{words}, {rows} of {planned} rows", file=sys.stderr)
                told = done


def tally(statuses: Iterable[str]) -> str:
    statuses = list(statuses)
    return ", ".join(f"{statuses.count(name)} {name}" for name in dict.fromkeys(statuses))


def main() -> int:
    """The job that stands on standard input: 0 when all its rows are there, 2 when it was refused."""
    from runner import driver

    settings, folder, label = pickle.load(sys.stdin.buffer)
    name = f"{label or 'job'} ({folder.name})"
    print(f"{name}: begun", file=sys.stderr, flush=True)
    try:
        outcome = driver.execute(settings, folder, show=False, label=label)
    except Refusal as refusal:
        lost.leave_word(folder, str(refusal))
        print(f"{name}: {refusal}", file=sys.stderr)
        return 2
    print(f"{name}: {tally(row['status'] for row in outcome.rows)}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
