"""The profiles of one case: each variant that is right, before any is timed, and outside profilers after."""

from __future__ import annotations

import time
from typing import Any

from runner.model import Entry
from runner.parent import seeds
from runner.process.supervisor import Worker
from runner.profile import case as profile_case
from runner.profile import nsight
from runner.profile.replay import Request
from runner.report.progress import title


class Profiling:
    """What profiles found, by entry: `profiled`."""

    def __init__(self, case: Any) -> None:
        self._case = case  # a runner.parent.case.CaseRun
        self.run, self.planned, self.settings = case.run, case.planned, case.settings
        self.profiled: dict[int, dict[str, Any]] = {}

    def each(self, worker: Worker) -> bool:
        """Profile each that is right, before any is timed. False when the attempt starts again."""
        for entry in [each for each in self._case.waiting.values() if each.index not in self.profiled]:
            verdict = self._one(worker, entry)
            if verdict["status"] == "ok":
                continue
            self._case.row(self._case.waiting.pop(entry.index), self._case.proven[entry.index] | verdict)
            if verdict.get("fatal"):
                self.run.replace_worker()
                return False
        return True

    def _one(self, worker: Worker, entry: Entry) -> dict[str, Any]:
        """The verdict on one variant's profile; its figures go to `profiled`."""
        folder, begun = self._case.folder("profile", entry), time.monotonic()
        answer = self._case.events(worker, "profile", index=entry.index, folder=str(folder))
        if answer["status"] != "ok":
            return {name: answer[name] for name in ("status", "stage", "reason", "fatal")}
        facts = profile_case.analyse(folder, self.planned.case, answer)
        facts |= {
            "folder": str(folder.relative_to(self.run.record.folder)),
            "wall_s": time.monotonic() - begun,
        }
        self.profiled[entry.index] = facts
        faults = "; ".join(facts["faults"])
        return {"status": "error" if faults else "ok", "stage": "profile", "reason": faults}

    def outside(self) -> None:
        """An outside profiler on the same calls; what it says goes to the user, not into rows."""
        folder = self.run.record.folder / "profile" / self.planned.case.case_id
        kernels = {
            self.planned.entries[index].variant.name: nsight.picked(facts["kernels"])
            for index, facts in self.profiled.items()
        }
        request = Request(
            run_id=self.run.record.run_id,
            device=self.settings.device,
            seed=seeds.of_draw(self.settings.seed, self.planned.case.case_id, 0),
            keep=str(folder / "replay"),
            title=title(self.planned.case),
            planned=self.planned,
            indices=tuple(self.profiled),
        )
        name, limit_s = self.settings.profiler, self.settings.limits.profile_s
        for sentence in nsight.run(name, folder, request, kernels, limit_s):
            self.run.progress.say(sentence)
