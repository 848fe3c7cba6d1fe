"""The parent's dealings with the judge over one case: seeds of draws, questions about outputs, verdicts."""

from __future__ import annotations

from typing import Any

from runner.model import Entry, PlannedCase
from runner.parent import seeds
from runner.process.supervisor import Worker, WorkerFailed, WorkerLost

ERRORS = ("max_abs_err", "max_rel_err", "norm_rel_err", "max_ulp")
_MOST_STALE = 3
_MOST_ENDS = 1  # of the judge while one variant is checked
COARSE = ("tf32", "bf16")  # units
TIMED_LATE = "right when checked, wrong when timed: "


class Unjudged(Exception):
    """No output of the case can be judged: its rows' status, stage and reason."""

    def __init__(self, status: str, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.stage, self.reason = status, stage, reason


class Ended(Exception):
    """The judge ended again and again while one variant was checked: its row's reason."""


class Judging:
    """What the judge says counts; what a worker says of its own outputs can only speak against them."""

    def __init__(self, run: Any, planned: PlannedCase) -> None:
        self.run, self.planned = run, planned
        self._checking = False  # one variant's check is going on, and no other runs
        self.restart()

    def restart(self) -> None:
        """A new attempt at the case: its draws are the first ones again, and a rehearsal has closed it."""
        self._opened: Worker | None = None
        self._numbers = [0] * len(self.planned.checked)
        self._looks: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        self.late: dict[int, str] = {}
        self.rounds: dict[int, set[int]] = {}  # whose outputs were judged, by entry
        self._ends = 0  # of the judge, since a variant's check began

    def draws(self, entry: Entry) -> dict[int, dict[str, Any]]:
        """What the worker needs to draw a variant's inputs, by position; the answers are then known."""
        self._looks[entry.index], self._ends, self._checking = [], 0, False
        return {position: self._expect(position, entry) for position in self.planned.positions(entry)}

    def answer(self, worker: Worker, event: dict[str, Any], timed: list[int]) -> None:
        """Answer an event of the worker's that waits for that. Raises Ended, or Unjudged."""
        self._checking = event["event"] == "output" and event["round"] is None
        if event["event"] == "output":
            worker.answer(right=self._look(worker, event))
            return
        self._numbers[0] += 1
        for index in timed:  # evaluated now, so that the judge is idle while they are timed
            draw = self._expect(0, self.planned.entries[index])
        worker.answer(seed=draw["seed"])

    def _look(self, worker: Worker, event: dict[str, Any]) -> bool:
        entry, position = self.planned.entries[event["index"]], event["position"]
        found = {"reason": event["fault"]} if event["fault"] else self._compare(worker, entry, event)
        if found.get("degenerate"):
            raise Unjudged(
                "error", "check", f"the case is degenerate: {found['degenerate']} would pass its check"
            )
        if event["round"] is None:
            found["reason"] = found["reason"] and event["call"] + found["reason"]
            self._looks[entry.index].append((position, found))
        else:
            self.rounds.setdefault(entry.index, set()).add(event["round"])
            if found["reason"]:
                self.late.setdefault(entry.index, TIMED_LATE + found["reason"])
        return not found["reason"]

    def _compare(self, worker: Worker, entry: Entry, event: dict[str, Any]) -> dict[str, Any]:
        position, variant = event["position"], entry.variant
        return self._ask(
            "look",
            **self._told(position, entry),
            accuracy=variant.accuracy,
            unit=variant.unit,
            worker=worker.pid,
            place=event["place"],
            full=event["round"] is None,
        )

    def verdict(self, entry: Entry, facts: dict[str, Any]) -> dict[str, Any]:
        """The worker's facts of a checked variant with the judge's figures and verdict."""
        if facts["status"] not in ("ok", "wrong"):
            return facts
        looks = self._looks.get(entry.index, [])
        wrong = next(((position, found["reason"]) for position, found in looks if found["reason"]), None)
        if facts["status"] == "ok" and not wrong and not looks:
            wrong = (self.planned.positions(entry)[0], "none of its outputs was judged")
        own = [found for position, found in looks if not self.planned.checked[position].where]
        facts = {**_figures(own), **facts, "notes": [*facts.get("notes", ()), *_notes(entry, own)]}
        if facts["reason"]:
            return facts | {"reason": self._place(facts.get("position", 0)) + facts["reason"]}
        if wrong:
            reason = self._place(wrong[0]) + wrong[1]
            return facts | {"status": "wrong", "stage": "check", "reason": reason}
        return facts

    def _place(self, position: int) -> str:
        """Which of the checked cases it was, where it was not the case itself."""
        if position == 0:
            return ""
        case = self.planned.checked[position]
        return f"at {case.where or ' '.join(f'{dim}={size}' for dim, size in case.shape.items())}: "

    def _told(self, position: int, entry: Entry) -> dict[str, Any]:
        """What the judge needs to have the right answer."""
        number = self._numbers[position]
        seed = seeds.of_draw(self.run.settings.seed, self.planned.checked[position].case_id, number)
        return {"position": position, "number": number, "seed": seed, "kwargs": entry.variant.kwargs}

    def _expect(self, position: int, entry: Entry) -> dict[str, Any]:
        told = self._told(position, entry)
        answer = self._ask("expect", **told)
        return {"seed": told["seed"], "out_shape": answer["out_shape"], "shapes": answer["shapes"]}

    def _ask(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Ask the judge. One that died is replaced once: that need not be the variant's fault."""
        for last in (False, True):
            try:
                answer = self._open().ask(name, **arguments)
            except (WorkerLost, WorkerFailed) as lost:
                self.run.replace_judge()
                self._ends += 1
                if self._checking and self._ends > _MOST_ENDS:
                    raise Ended(f"ended the process that judges it, twice: {lost.reason}") from lost
                if last or lost.status != "crashed":
                    raise Unjudged(lost.status, lost.stage, lost.reason) from lost
                continue
            if answer.get("status") == "failed":
                raise Unjudged("error", "inputs", answer["reason"])
            return answer
        raise AssertionError("the second failure raises")

    def _open(self) -> Worker:
        """The living judge, with this case open."""
        for _ in range(_MOST_STALE):
            judge = self.run.judge()
            if judge is self._opened or judge.ask("open", planned=self.planned)["status"] == "open":
                self._opened = judge
                return judge
            self.run.replace_judge()
        raise Unjudged("error", "build", "the reference's file changes each time it is imported")

    def close(self) -> None:
        """Let go of the case and of the worker's memory. One that has died holds nothing."""
        if self._opened is not None and self._opened.usable:
            self._opened.ask("close")
        self._opened = None


def _figures(looks: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst of what the judge found on the case itself; empty cells where it found nothing."""
    figures = {name: max((found.get(name, 0.0) for found in looks), default="") for name in ERRORS}
    ratios = [found["over_builtin"] for found in looks if found.get("over_builtin") is not None]
    return figures | {"err_over_builtin": max(ratios, default="")}


def _notes(entry: Entry, looks: list[dict[str, Any]]) -> list[str]:
    notes = []
    if looks and all(found.get("asked") == 0 for found in looks):
        notes.append("checked, but any output of the right shape would have passed")
    worst = max((found.get("scaled_err", 0.0) for found in looks), default=0.0)
    if entry.variant.accuracy == "normwise" and looks:
        notes.append(f"judged by norm: its worst element is off by {worst:.2g} of itself and the mean size")
    if entry.variant.unit in COARSE and entry.variant.accuracy == "elementwise" and looks:
        notes.append(f"judged as {entry.variant.unit} arithmetic, to {looks[0].get('tolerance', 0.0):.1e}")
    return notes
