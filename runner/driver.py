"""One run from its settings to its folder: plan, then each case through the worker, then the report."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import columns, folders, report, sources
from runner.collect import collect_jobs
from runner.model import Entry, PlannedCase, Settings
from runner.plan import plan
from runner.progress import Progress
from runner.record import Record, claim
from runner.supervisor import Device, Worker, WorkerFailed, WorkerLost, start

_POOL: dict[Device, Worker] = {}  # workers outlive a run: the jobs of a sweep share them


@dataclass(frozen=True)
class Outcome:
    """What a run left behind. `mean_ms` is the fastest row's, Hydra's objective value."""

    folder: Path | None
    failed: bool = False
    mean_ms: float | None = None
    rows: tuple[dict[str, Any], ...] = field(default=(), repr=False)


def execute(settings: Settings, folder: Path | None = None, show: bool = True) -> Outcome:
    """Run everything that is planned. `folder` is a sweep's for this job; None claims a new one."""
    planned = plan(settings)
    if settings.mode == "plan":
        report.print_plan(planned)
        return Outcome(None)
    alone = folder is None  # a sweep prints its jobs' tables once, joined
    if folder is None:
        folder = claim(Path(settings.output) / (settings.experiment or settings.op.name))
    record = Record(folder, settings, alone)
    try:
        with Progress(planned, show) as progress:
            _Run(settings, record, progress).cases(planned.cases)
    finally:
        record.close()
        for worker in _POOL.values():
            worker.output.send_to(None)
        report.write(folder)
    if show and alone:
        report.print_tables(folder)
    return _outcome(folder, record.rows)


def _outcome(folder: Path, rows: Sequence[dict[str, Any]]) -> Outcome:
    means = [row["mean_ms"] for row in rows if row["mean_ms"] != ""]
    failed = any(row["status"] in columns.FAILED for row in rows)
    return Outcome(folder, failed, min(means, default=None), tuple(rows))


def shutdown() -> None:
    """End all workers."""
    while _POOL:
        _POOL.popitem()[1].kill()


atexit.register(shutdown)


class _Run:
    """The cases of one run, one after the other."""

    def __init__(self, settings: Settings, record: Record, progress: Progress) -> None:
        self.settings, self.record, self.progress = settings, record, progress
        self.device = Device(settings.device, settings.measure.threads, settings.mode == "debug")
        self.identity: dict[str, Any] = {}

    def cases(self, cases: Sequence[PlannedCase]) -> None:
        self.worker()
        for planned in cases:
            _CaseRun(self, planned).finish()

    def worker(self) -> Worker:
        """The living worker; its facts go into the record when it is new to this run."""
        worker = start(self.device, self.settings.limits, _POOL)
        worker.output.send_to(self.record.log)
        if not self.identity:
            self.record.environment(self.settings, worker.facts)
            self.identity = {
                "run_id": self.record.run_id,
                "seed": self.settings.seed,
                "device_name": worker.facts["device_name"],
                "device_uuid": worker.facts["device_uuid"],
            }
        return worker

    def replace_worker(self) -> None:
        _POOL.pop(self.device).kill()


class _CaseRun:
    """One case: each variant is proven alone, the survivors are timed together.

    A variant that takes the worker down has its row, and the rest start again in a new worker as if
    it had not been there.
    """

    def __init__(self, run: _Run, planned: PlannedCase) -> None:
        self.run, self.planned, self.settings = run, planned, run.settings
        self.waiting: dict[int, Entry] = {}
        self.proven: dict[int, dict[str, Any]] = {}
        self.shas: dict[str, str] = {}
        for entry in planned.entries:
            if entry.variant.name not in self.shas:
                self.shas[entry.variant.name] = sources.digest(entry.variant)
            if entry.skip:
                self.row(entry, {"status": "skipped", "stage": "", "reason": entry.skip})
            else:
                self.waiting[entry.index] = entry

    def finish(self) -> None:
        while self.waiting:
            try:
                self._attempt(self.run.worker())
            except WorkerLost as lost:
                self.run.replace_worker()
                self._blame(lost)
            except WorkerFailed as failed:
                self._all_failed("error", "inputs", str(failed))

    def _blame(self, lost: WorkerLost) -> None:
        if lost.index is None:  # no variant was running: trying again would end the same way
            self._all_failed(lost.status, lost.stage, lost.reason)
            return
        entry = self.waiting.pop(lost.index)
        facts = {"status": lost.status, "stage": lost.stage, "reason": lost.reason}
        self.row(entry, self.proven.get(lost.index, {}) | facts)

    def _all_failed(self, status: str, stage: str, reason: str) -> None:
        for entry in list(self.waiting.values()):
            self.row(self.waiting.pop(entry.index), {"status": status, "stage": stage, "reason": reason})

    def _attempt(self, worker: Worker) -> None:
        """Prove all that wait, then time the survivors. Rows leave `waiting` as they become known."""
        limits = self.settings.limits
        opened = worker.ask("open", limits.inputs_s, planned=self.planned, seed=self.settings.seed)
        if opened["status"] == "stale":  # an older version of the reference lives in that process
            self.run.replace_worker()
            return
        for entry in list(self.waiting.values()):
            if not self._prove(worker, entry):
                return
        if self.waiting and self.settings.mode == "bench":
            self._measure(worker)
        worker.ask("close", limits.inputs_s)

    def _prove(self, worker: Worker, entry: Entry) -> bool:
        """False when the worker had to be replaced and the attempt starts again."""
        facts = self._events(worker, "prove", index=entry.index, keep=str(self._keep(entry)))
        if facts["status"] == "stale":  # an older version of this source lives in that process
            self.run.replace_worker()
            return False
        if self.settings.mode == "debug" and facts.get("traceback"):
            self.run.progress.say(facts["traceback"])
        if facts["status"] == "ok":
            self.proven[entry.index] = facts
            if self.settings.mode != "bench" or entry.interpreted:
                self._checked(self.waiting.pop(entry.index), facts)
            return True
        self.row(self.waiting.pop(entry.index), facts)
        if facts.get("fatal"):
            self.run.replace_worker()
            return False
        return True

    def _keep(self, entry: Entry) -> Path:
        params = [f"{name}={columns.cell(value)}" for name, value in entry.params.items()]
        name = folders.slug("_".join([entry.variant.name, *params]))
        return self.run.record.folder / "builds" / self.planned.case.case_id / name

    def _events(self, worker: Worker, name: str, **arguments: Any) -> dict[str, Any]:
        """Send a request, show its steps, return its answer."""
        event: dict[str, Any] = {}
        for event in worker.call(name, self.settings.limits.inputs_s, **arguments):
            if event["event"] == "step":
                self.run.progress.step(self.planned, event)
            elif event["event"] == "series":
                self._series(event)
        return event

    def _checked(self, entry: Entry, facts: dict[str, Any]) -> None:
        notes = list(facts.get("notes", ()))
        if entry.interpreted:
            shapes = ", ".join(columns.cell(case.shape) for case in self.planned.smoke)
            notes.append(f"checked in Triton's interpreter at {shapes}, not timed")
        self.row(entry, facts | {"status": "checked", "stage": "", "notes": notes})

    def _measure(self, worker: Worker) -> None:
        self.timed: dict[int, dict[str, Any]] = {}
        measure = self.settings.measure
        answer = self._events(
            worker,
            "measure",
            indices=list(self.waiting),
            trials=measure.trials,
            warmup=measure.warmup,
            flush=measure.flush,
            seed=self.settings.seed,
        )
        baseline = self._baseline_ms()
        for index, series in self.timed.items():
            self._timed(self.waiting.pop(index), series, answer, baseline)

    def _series(self, event: dict[str, Any]) -> None:
        self.timed[event["index"]] = event

    def _baseline_ms(self) -> float | None:
        for index, series in self.timed.items():
            if self.planned.entries[index].variant.name == self.planned.case.baseline and not series["late"]:
                return sum(series["device_us"]) / len(series["device_us"]) / 1e3
        return None

    def _timed(
        self, entry: Entry, series: dict[str, Any], answer: dict[str, Any], baseline: float | None
    ) -> None:
        facts = dict(self.proven[entry.index])
        if series["late"]:
            self.row(entry, facts | {"status": "wrong", "stage": "measure", "reason": series["late"]})
            return
        notes = [*facts.get("notes", ()), *filter(None, [answer["note"]])]
        facts |= {
            "timing": "cold" if self.settings.measure.flush else "warm",
            "stop_reason": "trials",
            "samples_us": series["device_us"],
            "host_samples_us": series["host_us"],
            "held": series["held"],
            "end_to_end_us": series["end_to_end_us"],
            "event_overhead_us": answer["event_overhead_us"],
            "copy_gbps": answer["copy_gbps"],
            "baseline_ms": baseline,
            "notes": notes,
        }
        self.run.record.samples(self.row(entry, facts), series)

    def row(self, entry: Entry, facts: dict[str, Any]) -> dict[str, Any]:
        facts = facts | {"source_sha": self.shas[entry.variant.name]}
        row = columns.row(self.run.identity or self._identity(), self.planned.case, entry, facts)
        self.run.record.add(row)
        self.run.progress.row(self.planned, row)
        return row

    def _identity(self) -> dict[str, Any]:
        self.run.worker()
        return self.run.identity


def finish(sweep: Path | None, outcomes: Sequence[Outcome]) -> int:
    """After the last job: join a sweep's tables, and the exit code (1 when any row failed)."""
    if sweep is None:
        return int(any(outcome.failed for outcome in outcomes))
    collect_jobs(sweep)
    report.write(sweep)
    report.print_tables(sweep)
    return int(any(row["status"] in columns.FAILED for row in report.read(sweep)))  # jobs may run elsewhere
