"""One run from its settings to its folder: plan, then each case through the worker, then the report."""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import claims, columns, device_lock, profile_report, report, step_report, workload_run
from runner.case_run import CaseRun
from runner.collect import collect_jobs
from runner.model import PlannedCase, Refusal, Settings
from runner.plan import plan
from runner.progress import Progress
from runner.record import Record, claim, writing
from runner.supervisor import Device, Worker, WorkerFailed, WorkerLost, start

_POOL: dict[Device, Worker] = {}  # workers outlive a run: the jobs of a sweep share them


@dataclass(frozen=True)
class Outcome:
    """What a run left behind. `mean_ms` is the fastest row's, Hydra's objective value."""

    folder: Path | None
    failed: bool = False
    mean_ms: float | None = None
    rows: tuple[dict[str, Any], ...] = field(default=(), repr=False)


def execute(settings: Settings, folder: Path | None = None, show: bool = True, label: str = "") -> Outcome:
    """Run everything that is planned. `folder` is a sweep's for this job; None claims a new one.

    `label` is shown beside the progress ("job 2/4").
    """
    if settings.mode == "ceilings":
        report.print_ceilings(measured_ceilings(settings))
        return Outcome(None)
    planned = workload_run.planned(settings) if settings.workload else plan(settings)
    if settings.mode == "plan":
        report.print_plan(planned)
        return Outcome(None)
    alone = folder is None  # a sweep prints its jobs' tables once, joined
    if folder is None:
        folder = claim(Path(settings.output) / (settings.experiment or settings.name))
    record = Record(folder, settings, alone)
    try:
        with Progress(planned, show, label, bar=settings.mode != "debug") as progress:
            run = _Run(settings, record, progress)
            if settings.workload:
                workload_run.WorkloadRun(run, planned.cases).finish()
            else:
                run.cases(planned.cases)
    except BaseException as error:  # an interrupt too leaves a folder that can be read
        if not isinstance(error, Exception):
            shutdown()  # compilers first
        with contextlib.suppress(Exception):  # `error` is the one to be told
            _complete(record)
        raise
    _complete(record)
    if show and alone:
        report.print_tables(folder)
        profile_report.show(folder)
    return _outcome(folder, record.rows)


def _complete(record: Record) -> None:
    """Close the folder's files and write its report."""
    for worker in _POOL.values():
        worker.output.settle()
        worker.output.send_to(None)
    record.close()
    with writing(record.folder):
        report.write(record.folder)
        profile_report.write(record.folder)


def measured_ceilings(settings: Settings) -> dict[str, Any]:
    """What the device can do, measured anew; later runs on it take this from the cache."""
    try:
        worker = start(Device(settings.device, settings.measure.threads, False), settings.limits, _POOL)
        key = device_lock.key_of(worker.facts["device_uuid"])
        with device_lock.held(key, settings.device, print, settings.command):
            return worker.ask("ceilings", refresh=True)["ceilings"]
    except (WorkerLost, WorkerFailed) as failed:
        raise Refusal(f"the ceilings of {settings.device} cannot be measured: {failed}") from failed


def _outcome(folder: Path, rows: Sequence[dict[str, Any]]) -> Outcome:
    means = [row["mean_ms"] for row in rows if row["mean_ms"] != ""]
    failed = any(row["status"] in columns.FAILED for row in rows)
    return Outcome(folder, failed, min(means, default=None), tuple(rows))


def shutdown() -> None:
    """End all workers."""
    while _POOL:
        device = next(iter(_POOL))
        _POOL[device].kill()  # only then out of the pool: an interrupt may come in between
        del _POOL[device]


@atexit.register
def _last() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is near enough
    shutdown()


class _Run:
    """The cases of one run, one after the other."""

    def __init__(self, settings: Settings, record: Record, progress: Progress) -> None:
        self.settings, self.record, self.progress = settings, record, progress
        self.device = Device(settings.device, settings.measure.threads, settings.mode == "debug")
        self.identity: dict[str, Any] = {}
        self.known: dict[str, Any] | None = None

    def cases(self, cases: Sequence[PlannedCase]) -> None:
        failed: WorkerLost | WorkerFailed | None = None
        for planned in cases:
            failed = failed or self._obstacle()
            case = CaseRun(self, planned)
            if failed is None:
                case.finish()
            else:  # a worker that does not start would not start for the next case either
                case.all_failed(failed.status, failed.stage, failed.reason)

    def _obstacle(self) -> WorkerLost | WorkerFailed | None:
        """Why there is no worker; None when there is one."""
        try:
            self.worker()
        except (WorkerLost, WorkerFailed) as failed:
            if not self.identity:
                self._identify({"device_name": self.settings.device, "device_uuid": ""})
            return failed
        return None

    def worker(self) -> Worker:
        """The living worker; its facts go into the record when it is new to this run."""
        worker = start(self.device, self.settings.limits, _POOL, self.record.log)
        worker.output.send_to(self.record.log)
        if not self.identity:
            self._identify(worker.facts)
        return worker

    def _identify(self, facts: dict[str, Any]) -> None:
        self.record.environment(self.settings, facts)
        self.identity = {
            "run_id": self.record.run_id,
            "seed": self.settings.seed,
            "device_name": facts["device_name"],
            "device_uuid": facts["device_uuid"],
        }

    def ceilings(self, worker: Worker) -> dict[str, Any]:
        """What the device can do; measured once per device and driver, and kept on disk."""
        if self.known is None:
            self.known = worker.ask("ceilings", refresh=False)["ceilings"]
        return self.known

    def replace_worker(self) -> None:
        worker = _POOL.pop(self.device, None)  # none where none could be started
        if worker is not None:
            worker.kill()


def finish(sweep: Path | None, outcomes: Sequence[Outcome]) -> int:
    """After the last job: join a sweep's tables, and the exit code (1 when any row failed)."""
    if sweep is None:
        return int(any(outcome.failed for outcome in outcomes))
    with writing(sweep):
        collect_jobs(sweep)
        step_report.join(sweep)
        claims.write_table(sweep)
        report.write(sweep)
        profile_report.write(sweep)
    report.print_tables(sweep)
    profile_report.show(sweep)
    return int(any(row["status"] in columns.FAILED for row in report.read(sweep)))  # jobs may run elsewhere
