"""The times of one case: its survivors timed together, each with the row that its samples give."""

from __future__ import annotations

from typing import Any

from runner.measure.seen import from_memory, slow_when_untimed
from runner.model import Entry
from runner.process import interrupts
from runner.process.supervisor import Worker
from runner.profile import case as profile_case

_TIMES = ("rounds", "device_us", "fresh", "beside_us", "again_us")  # what tells who answers from memory


class Timing:
    """What was timed, by entry: the series of the attempt at hand."""

    def __init__(self, case: Any) -> None:
        self._case = case  # a runner.parent.case.CaseRun
        self.run, self.planned, self.settings = case.run, case.planned, case.settings
        self.timed: dict[int, dict[str, Any]] = {}
        self._each = False  # look at what every single call leaves behind

    def measure(self, worker: Worker, ceilings: dict[str, Any]) -> bool:
        """False when a variant spoiled the measurement for all: it has its row, and the rest start again."""
        most = f"at most {self.settings.limits.measure_s:g} s"
        with interrupts.finishing(f"the rows that are being timed ({most})"):
            return self._measured(worker, ceilings)

    def _measured(self, worker: Worker, ceilings: dict[str, Any]) -> bool:
        self.timed = {}
        indices, how, judge = list(self._case.waiting), self.settings.measure, self.run.judge().pid
        told = {"indices": indices, "how": how, "judge": judge, "each": self._each}
        answer = self._case.events(worker, "measure", **told)
        self.run.spent.on()
        if "tampered" in answer:
            self._tampered(answer["tampered"], answer["reason"])
            return False
        self._log_cost(answer["checking_s"], answer["timing_s"], len(indices))
        common = {**answer["card"], "ceilings": ceilings, "baseline_ms": self._baseline_ms()}
        common["event_overhead_us"] = answer["event_overhead_us"]
        common["card_notes"] += filter(None, [ceilings["note"]])
        if common["baseline_ms"] is None and (known := self._known_baseline()):
            common["baseline_ms"] = float(known["mean_ms"])
            common["card_notes"].append("the baseline was timed before the run was resumed")
        rows = {
            index: self._timed(self._case.waiting.pop(index), series, common)
            for index, series in self.timed.items()
        }
        for index, row in rows.items():
            if self.settings.mode == "traps" and row["status"] == "ok":
                self._traps(worker, index, row)
        return True

    def _tampered(self, index: int | None, reason: str) -> None:
        """The culprit has its row; where it might have been several, the next attempt finds out."""
        self._each = index is None
        if index is None:
            words = "one of several calls, which are timed again and looked at one by one"
            self.run.record.log.say(f"{self.planned.case.case_id}: {reason}: {words}")
        else:
            facts = {"status": "wrong", "stage": "measure", "reason": reason}
            self._case.row(self._case.waiting.pop(index), facts)
        self.run.replace_worker()

    def _log_cost(self, checking_s: float, timing_s: float, variants: int) -> None:
        """What the check of timed calls cost, for `run.log`."""
        words = f"{self.planned.case.case_id}: {variants} variants timed in {timing_s:.2f} s"
        self.run.record.log.say(f"{words}, checked meanwhile in {checking_s:.2f} s")

    def _traps(self, worker: Worker, index: int, row: dict[str, Any]) -> None:
        mean_us = row["mean_ms"] * 1e3
        answer = self._case.events(worker, "traps", index=index, mean_us=mean_us)
        self.run.record.traps(row, [("right", "flushed, held, in turns, many", mean_us), *answer["readings"]])

    def take(self, event: dict[str, Any]) -> None:
        """A series that the worker sent; `late` says what speaks against it."""
        index = event["index"]
        late = self._case.judging.late.get(index, "")
        if not late and not self._case.judging.rounds.get(index):
            late = "none of its timed outputs was judged"
        late = late or from_memory(*(event[name] for name in _TIMES))
        for untimed in (self._case.proven[index].get("untimed_us", ()), event["warmup_us"]):
            late = late or slow_when_untimed(untimed, event["device_us"], event["host_us"])
        self.timed[index] = event | {"late": late}

    def _baseline_ms(self) -> float | None:
        for index, series in self.timed.items():
            if self.planned.entries[index].variant.name == self.planned.case.baseline and not series["late"]:
                return sum(series["device_us"]) / len(series["device_us"]) / 1e3
        return None

    def _known_baseline(self) -> dict[str, Any] | None:
        """The baseline's row where it was timed before the run was resumed."""
        entries = (e for e in self.planned.entries if e.variant.name == self.planned.case.baseline)
        rows = (self.run.row_of(self.planned, entry) for entry in entries)
        return next((row for row in rows if row and row["mean_ms"]), None)

    def _timed(self, entry: Entry, series: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
        facts = dict(self._case.proven[entry.index])
        if series["late"]:
            facts |= {"status": "wrong", "stage": "measure", "reason": series["late"]}
            return self._case.row(entry, facts)
        how = self.settings.measure
        facts |= {
            **common,
            "timing": how.timing,
            "stop_reason": series["stop_reason"],
            "precision": None if how.trials else how.precision,
            "samples_us": series["device_us"],
            "host_samples_us": series["host_us"],
            "held": series["held"],
            "end_to_end_us": series["end_to_end_us"],
            "notes": [*facts.get("notes", ()), *common["card_notes"]],
        }
        if profiled := self._case.profiling.profiled.get(entry.index):
            timed_us = sum(series["device_us"]) / len(series["device_us"])
            profiled, words = profile_case.against(profiled, timed_us)
            facts |= {"kernels_per_call": profiled["kernels_per_call"], "notes": [*facts["notes"], words]}
        row = self._case.row(entry, facts, series)
        if profiled:
            self.run.record.table("profiles.csv", profile_case.PROFILE_COLUMNS, [row | profiled])
        return row
