"""One run from its settings to its folder: plan, then each case through the worker, then the report."""

from __future__ import annotations

import atexit
import contextlib
import math
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.config import devices
from runner.model import HOST, IPC, Entry, PlannedCase, Refusal, Settings
from runner.parent import workload
from runner.parent.case import CaseRun
from runner.parent.spent import Spent
from runner.plan import plan
from runner.process import device_lock, memory
from runner.process.supervisor import Device, Worker, WorkerFailed, WorkerLost, launch, start
from runner.record import columns, planned
from runner.record.folder import Record, claim, writing
from runner.record.joined import collect_jobs
from runner.report import claims, profiles, report, steps
from runner.report.progress import Progress

_OFFERED = 1024  # numbers that are sent on trial
_WAYS: dict[str, str] = {}  # by device
_POOL: dict[Device, Worker] = {}  # workers and judges outlive a run: the jobs of a sweep share them


@dataclass(frozen=True)
class Outcome:
    """What a run left behind. `mean_ms` is the fastest row's, Hydra's objective value."""

    folder: Path | None
    failed: bool = False
    mean_ms: float | None = None
    fresh: int = 0  # rows that were not there before
    rows: tuple[dict[str, Any], ...] = field(default=(), repr=False)


def execute(settings: Settings, folder: Path | None = None, show: bool = True, label: str = "") -> Outcome:
    """Run everything that is planned. `folder` is a sweep's for this job; None claims a new one.

    `label` is shown beside the progress ("job 2/4").
    """
    if settings.device == devices.ANY and settings.mode != "plan":
        with _free_gpu(settings) as device:
            return execute(replace(settings, device=device), folder, show, label)
    if settings.mode == "ceilings":
        report.print_ceilings(measured_ceilings(settings))
        return Outcome(None)
    if settings.mode == "plan":
        free = memory.available_bytes() if settings.device == "cpu" else math.inf  # of a GPU torch knows
        report.print_plan(plan(settings), free)
        return Outcome(None)
    if folder is not None:
        return carry_on(settings, folder, False, show, label)
    folder = claim(Path(settings.output) / (settings.experiment or settings.name))
    with planned.in_use(folder):
        planned.keep_run(folder, settings)
        return _carried_out(settings, folder, True, show, label)


def carry_on(settings: Settings, folder: Path, alone: bool, show: bool = True, label: str = "") -> Outcome:
    """The rows that `folder` lacks: all of them where it is empty. `alone`: it is no sweep's job."""
    with planned.in_use(folder):
        return _carried_out(settings, folder, alone, show, label)


def _carried_out(settings: Settings, folder: Path, alone: bool, show: bool, label: str) -> Outcome:
    cases, record = plan(settings), Record(folder, settings, alone)
    try:
        bar = settings.mode != "debug"
        with Progress(cases, show, label, bar, done=len(record.rows)) as progress:
            run = _Run(settings, record, progress)
            if settings.workload:
                workload.WorkloadRun(run, cases.cases).finish()
            else:
                run.cases(cases.cases)
            run.tell_spent()
    except BaseException as error:  # an interrupt too leaves a folder that can be read
        if not isinstance(error, Exception):
            shutdown()  # compilers first
        with contextlib.suppress(Exception):  # `error` is the one to be told
            _complete(record)
        if alone and isinstance(error, KeyboardInterrupt):
            say_what_is_left(folder)
        raise
    record.tell_seed(settings)
    _complete(record, pictures=alone)
    if show and alone:  # a sweep prints its jobs' tables once, joined
        report.print_tables(folder)
        profiles.show(folder)
    return _outcome(record)


def _complete(record: Record, pictures: bool = False) -> None:
    """Close the folder's files and write its report; pictures of a sweep are drawn once, at its end."""
    for worker in _POOL.values():
        worker.output.settle()
        worker.output.send_to(None)
    record.close()
    with writing(record.folder):
        report.write(record.folder, pictures)
        profiles.write(record.folder)


@contextlib.contextmanager
def _free_gpu(settings: Settings) -> Iterator[str]:
    """A GPU of this host that no other run with `device=cuda:any` has, for the whole run."""
    devices.resolve(devices.ANY)  # a job of a launcher may have come to a host without one
    keys = devices.keys()
    with device_lock.first_free(list(keys), _say, settings.command) as key:
        yield keys[key]


def _say(text: str) -> None:
    print(f"runner: {text}", file=sys.stderr, flush=True)


def say_what_is_left(folder: Path) -> None:
    """Where an interrupted run or sweep has its finished rows, and what to type for the others."""
    _say(f"what was finished is in {folder}")
    if planned.can_be_carried_on(folder):
        _say(f"python -m runner resume={folder} does the rest")


def measured_ceilings(settings: Settings) -> dict[str, Any]:
    """What the device can do, measured anew; later runs on it take this from the cache."""
    try:
        worker = start(Device(settings.device, settings.measure.threads, False), settings.limits, _POOL)
        key = device_lock.key_of(worker.facts["device_uuid"])
        with device_lock.held(key, settings.device, print, settings.command):
            return worker.ask("ceilings", refresh=True)["ceilings"]
    except (WorkerLost, WorkerFailed) as failed:
        raise Refusal(f"the ceilings of {settings.device} cannot be measured: {failed}") from failed


def _outcome(record: Record) -> Outcome:
    rows = record.rows
    means = [float(row["mean_ms"]) for row in rows if row["mean_ms"] != ""]
    failed = any(row["status"] in columns.FAILED for row in rows)
    return Outcome(record.folder, failed, min(means, default=None), record.fresh, tuple(rows))


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
        self.bench = Device(settings.device, settings.measure.threads, False, judges=True)
        self.spent = Spent()
        self.identity: dict[str, Any] = {}
        self.known: dict[str, Any] | None = None

    def cases(self, cases: Sequence[PlannedCase]) -> None:
        failed: WorkerLost | WorkerFailed | None = None
        for each in cases:
            if all(self.row_of(each, entry) for entry in each.entries):
                continue
            failed = failed or self._obstacle()
            case = CaseRun(self, each)
            if failed is None:
                case.finish()
            else:  # a worker that does not start would not start for the next case either
                case.all_failed(failed.status, failed.stage, failed.reason)

    def tell_spent(self) -> None:
        """Where the time of the whole run went; nothing where no worker was needed."""
        if words := self.spent.words():
            self.record.log.say(f"spent {words}")
            self.progress.say(f"spent {words}")

    def row_of(self, case: PlannedCase, entry: Entry) -> dict[str, Any] | None:
        """The row that the folder had before; None where it is still to be found."""
        return self.record.row_of(columns.row_id(self.record.run_id, case.case, entry))

    def _obstacle(self) -> WorkerLost | WorkerFailed | None:
        """Why there is no worker; None when there is one."""
        self.spent.on("start")
        try:
            self.worker()
            self.judge()
        except (WorkerLost, WorkerFailed) as failed:
            if not self.identity:
                self._identify({"device_name": self.settings.device, "device_uuid": ""})
            return failed
        return None

    def worker(self) -> Worker:
        """The living worker; its facts go into the record when it is new to this run."""
        launch(self.bench, self.settings.limits, _POOL, self.record.log)  # both import torch meanwhile
        worker = start(self.device, self.settings.limits, _POOL, self.record.log)
        worker.output.send_to(self.record.log)
        if not self.identity:
            self._identify(worker.facts | {"outputs_judged_through": self.way(worker)})
        return worker

    def judge(self) -> Worker:
        """The living judge."""
        judge = start(self.bench, self.settings.limits, _POOL, self.record.log)
        judge.output.send_to(self.record.log)
        return judge

    def way(self, worker: Worker) -> str:
        """How the judge sees the worker's outputs; tried once for each device."""
        name = self.device.name
        if name not in _WAYS:
            _WAYS[name] = HOST if name == "cpu" else self._tried(worker)
        return _WAYS[name]

    def _tried(self, worker: Worker) -> str:
        offered = worker.ask("offer", way=IPC, count=_OFFERED)
        why = offered["why"]
        if not why:
            answer = self.judge().ask("accept", worker=worker.pid, place=offered["place"], count=_OFFERED)
            if answer["same"]:
                return IPC
            why = answer["why"] or "other numbers came out"
        self.progress.say(f"{IPC} does not work here ({why}): outputs are judged through {HOST}")
        return HOST

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
            self.record.ceilings(self.known)
        return self.known

    def replace_worker(self) -> None:
        _end(self.device)

    def replace_judge(self) -> None:
        _end(self.bench)


def _end(device: Device) -> None:
    worker = _POOL.pop(device, None)  # none where none could be started
    if worker is not None:
        worker.kill()


def finish(sweep: Path | None, outcomes: Sequence[Outcome]) -> int:
    """After the last job: join a sweep's tables, and the exit code (1 when any row failed)."""
    if sweep is None:
        return int(any(outcome.failed for outcome in outcomes))
    with writing(sweep):
        collect_jobs(sweep)
        steps.join(sweep)
        claims.write_table(sweep)
        report.write(sweep, pictures=True)
        profiles.write(sweep)
    report.print_tables(sweep)
    profiles.show(sweep)
    return int(any(row["status"] in columns.FAILED for row in report.read(sweep)))  # jobs may run elsewhere
