"""One case of a run, through the worker: each variant proven alone, the survivors timed together."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

from runner.build import sources
from runner.check import sanitizer
from runner.config import folders
from runner.model import Entry, PlannedCase
from runner.parent import spent
from runner.parent.blame import Blame
from runner.parent.judging import Ended, Judging, Unjudged
from runner.parent.profiling import Profiling
from runner.parent.timing import Timing
from runner.process import device_lock, interrupts
from runner.process.supervisor import Worker, WorkerFailed, WorkerLost
from runner.record import columns

_MOST_RESTARTS = 3
TIMED = ("bench", "traps", "profile")  # the modes that time what is right


class CaseRun:
    """One case: each variant is proven alone, the survivors are timed together.

    A variant that takes the worker down has its row, and the rest start again in a new worker as if
    it had not been there.
    """

    def __init__(self, run: Any, planned: PlannedCase) -> None:
        self.run, self.planned, self.settings = run, planned, run.settings
        self.waiting: dict[int, Entry] = {}
        self.proven: dict[int, dict[str, Any]] = {}
        self.blame = Blame(self)
        self.ran: list[tuple[str, int, float]] = []  # what ran in the worker, see blame.py
        self.judging = Judging(run, planned)
        self.profiling, self.timing = Profiling(self), Timing(self)
        self.seconds: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.restarts: collections.Counter[int] = collections.Counter()  # for stale files, by entry
        for entry in planned.entries:
            if run.row_of(planned, entry):  # a resumed run's
                continue
            if entry.skip:
                self.row(entry, {"status": "skipped", "stage": "", "reason": entry.skip})
            else:
                self.waiting[entry.index] = entry

    def finish(self) -> None:
        """Every row of the case; the device is held while anything on it is timed."""
        if not self.waiting:
            return
        if self.settings.mode not in TIMED:
            return self._finish()
        worker = self.run.worker()
        key, device = device_lock.key_of(worker.facts["device_uuid"]), self.settings.device
        self.run.spent.on("wait")
        with device_lock.held(key, device, self.run.progress.say, self.settings.command):
            self._finish()

    def _finish(self) -> None:
        while self.waiting:
            interrupts.check()
            self.run.spent.on("start")
            try:
                self._attempt(self.run.worker())
            except (WorkerLost, WorkerFailed) as lost:
                self.run.replace_worker()
                self._blame(lost)
            except Unjudged as found:
                self.all_failed(found.status, found.stage, found.reason)

    def _blame(self, lost: WorkerLost | WorkerFailed) -> None:
        if lost.index is None:  # no variant was running: where none had run before, it would end so again
            if not self.blame.of_an_earlier(lost, self.ran):
                self.all_failed(lost.status, lost.stage, lost.reason)
            return
        entry = self.waiting.get(lost.index)
        if entry is None:  # its row was written already: only its traps are lost
            return
        if isinstance(lost, WorkerLost) and lost.status != "timeout":
            interrupts.check()
            if self.blame.of_another(entry, lost, self.ran):
                return
        del self.waiting[lost.index]
        facts = {"status": lost.status, "stage": lost.stage, "reason": self.blame.reason(entry, lost)}
        self.row(entry, self.proven.get(lost.index, {}) | facts)

    def all_failed(self, status: str, stage: str, reason: str) -> None:
        """The same row for every variant that has none yet."""
        for entry in list(self.waiting.values()):
            self.row(self.waiting.pop(entry.index), {"status": status, "stage": stage, "reason": reason})

    def _attempt(self, worker: Worker) -> None:
        """Prove all that wait, then time the survivors. Rows leave `waiting` as they become known."""
        self.ran = worker.ran
        self.run.spent.on("ceilings")
        ceilings = self.run.ceilings(worker) if self.settings.mode in TIMED else None
        self.run.spent.on()
        self.judging.restart()
        worker.ask("open", planned=self.planned, way=self.run.way(worker))
        for entry in list(self.waiting.values()):
            if not self._prove(worker, entry):
                return
        if self.settings.mode == "profile" and not self.profiling.each(worker):
            return
        if self.waiting and self.settings.mode in TIMED and not self.timing.measure(worker, ceilings):
            return
        self.judging.close()  # the worker's memory is the worker's again
        worker.ask("close")
        if self.profiling.profiled and self.settings.profiler != "torch":
            self.profiling.outside()

    def _prove(self, worker: Worker, entry: Entry) -> bool:
        """False when the worker had to be replaced and the attempt starts again."""
        if short := _too_large(entry, worker.facts):
            self.row(self.waiting.pop(entry.index), {"status": "skipped", "stage": "", "reason": short})
            return True
        self.run.progress.step(
            self.planned, {"index": None, "stage": "inputs", "what": "inputs and reference"}
        )
        with interrupts.finishing(f"the check of {entry.variant.name}"):
            return self._proven(worker, entry)

    def _proven(self, worker: Worker, entry: Entry) -> bool:
        self.run.spent.on("inputs", row=self.seconds[entry.index])
        draws = self.judging.draws(entry)
        try:
            facts = self.events(worker, "prove", index=entry.index, keep=str(self._keep(entry)), draws=draws)
        except Ended as ended:  # it may have left what ends the next one too
            facts = {"status": "wrong", "stage": "check", "reason": str(ended), "fatal": True}
        if facts["status"] == "stale":
            self._stale(entry)
            return False
        self.run.spent.on("check", row=self.seconds[entry.index])
        facts = self.judging.verdict(entry, facts)
        if self.settings.check == "sanitizer" and facts["status"] == "ok" and not entry.interpreted:
            self.run.progress.step(
                self.planned, {"index": entry.index, "stage": "check", "what": "sanitizer"}
            )
            limits, device = self.settings.limits, self.settings.device
            found = sanitizer.verdict(self.planned, entry, device, limits.check_s)
            facts |= found | {"notes": [*facts.get("notes", ()), *found.get("notes", ())]}
        if facts["status"] == "ok":
            self.proven[entry.index] = facts
            if self.settings.mode not in TIMED or entry.interpreted:
                self._checked(self.waiting.pop(entry.index), facts)
            return True
        if facts.get("fatal") and facts["status"] == "error":  # a broken context: perhaps another's doing
            raise WorkerLost("error", facts["reason"], entry.index, facts["stage"])
        self.row(self.waiting.pop(entry.index), facts)
        if facts.get("fatal"):
            self.run.replace_worker()
            return False
        return True

    def _stale(self, entry: Entry) -> None:
        """An older version of a file lives in the worker: a new one takes over, but not for ever."""
        self.run.replace_worker()
        self.restarts[entry.index] += 1
        if self.restarts[entry.index] >= _MOST_RESTARTS:
            facts = ("error", "build", "one of its files changes each time it is imported")
            self.row(self.waiting.pop(entry.index), dict(zip(("status", "stage", "reason"), facts)))

    def _keep(self, entry: Entry) -> Path:
        return self.folder("builds", entry)

    def folder(self, kind: str, entry: Entry) -> Path:
        name = folders.of_variant(entry.variant.name, entry.params)
        return self.run.record.folder / kind / self.planned.case.case_id / name

    def events(self, worker: Worker, name: str, **arguments: Any) -> dict[str, Any]:
        """Send a request, show its steps, return its answer."""
        event: dict[str, Any] = {}
        for event in worker.call(name, **arguments):
            interrupts.check(self.settings.limits.measure_s)
            if event["event"] == "step":
                index = event["index"]
                self.run.spent.step(event, None if index is None else self.seconds[index])
                self.run.progress.step(self.planned, event)
                if name == "prove" and index is not None:  # its code runs now
                    worker.note(self.planned.case.case_id, index)
            elif event["event"] == "series":
                self.timing.take(event)
            elif event["event"] in ("output", "fresh"):
                self.judging.answer(worker, event, list(self.waiting))
        return event

    def _checked(self, entry: Entry, facts: dict[str, Any]) -> None:
        notes = list(facts.get("notes", ()))
        if entry.interpreted:
            notes.append(f"checked in Triton's interpreter at the {len(self.planned.smoke)} smoke shapes")
        self.row(entry, facts | {"status": "checked", "stage": "", "notes": notes})

    def rehearse(self, entries: list[Entry], wait_s: float) -> WorkerLost | None:
        """How a new worker ends that proves and times only these; None when it lives `wait_s` longer."""
        self.run.replace_worker()
        try:
            worker = self.run.worker()
            Rehearsal(self.run, self.planned, entries)._attempt(worker)
            return worker.outlives(wait_s)
        except WorkerLost as lost:
            return lost
        except (WorkerFailed, Unjudged):
            return None
        finally:
            self.run.replace_worker()

    def row(
        self, entry: Entry, facts: dict[str, Any], series: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        if "source_sha" not in facts:  # nothing was imported: the hash of what lies there now
            facts = facts | {"source_sha": sources.digest_now(entry.variant)}
        if note := self.blame.notes.get(entry.index):
            facts = facts | {"notes": [*facts.get("notes", ()), note]}
        row = columns.row(self.run.identity, self.planned.case, entry, facts)
        if series is not None:  # first, so that a row that is there has its samples
            judged = self.judging.rounds[entry.index]
            self.run.record.samples(row, series, facts["sm_mhz_samples"], judged)
        self.run.record.add(row)
        self.run.progress.row(self.planned, row)
        self._log_spent(entry, facts)
        return row

    def _log_spent(self, entry: Entry, facts: dict[str, Any]) -> None:
        """A line in `run.log`: where the time of a row went."""
        self.run.spent.on()
        words = spent.words_of(self.seconds.pop(entry.index, {}), facts.get("build_cached"))
        if words:
            name = folders.of_variant(entry.variant.name, entry.params)
            case = self.planned.case
            self.run.record.log.say(f"case {case.case_id} {case.op} {name}: {words}")


class Rehearsal(CaseRun):
    """Some of a case's variants alone; nothing of it is recorded."""

    def __init__(self, run: Any, planned: PlannedCase, entries: list[Entry]) -> None:
        super().__init__(run, planned)
        self.waiting = {entry.index: entry for entry in entries}

    def row(self, entry: Entry, facts: dict[str, Any], series: dict[str, Any] | None = None) -> dict:
        return {"status": ""}  # so that no traps follow


def _too_large(entry: Entry, facts: dict[str, Any]) -> str:
    """Why the device cannot hold what a variant needs; empty when it can."""
    on_gpu = "device_memory_bytes" in facts
    total = facts.get("device_memory_bytes" if on_gpu else "memory_bytes")
    need = entry.memory_bytes
    if entry.interpreted or total is None or need <= 0.95 * total:
        return ""
    return f"needs {need / 1e9:.1f} GB, and {facts['device']} has {total / 1e9:.1f} GB"
