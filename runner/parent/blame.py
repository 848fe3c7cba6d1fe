"""Who ended the worker: the variant that was announced, or one that had run in the same process before.

A variant may leave a timer, a thread or a corrupt heap behind that ends the process while another runs. So
the announced one is blamed at once only when nothing ran before it; else it runs again alone in a new
process, and when it passes there, those before it do, each alone, then each with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from runner.model import Entry
from runner.process.supervisor import WorkerFailed, WorkerLost

_LONGEST_S = 5.0  # that is waited for a late end
_MARGIN_S = 0.5
_MOST_ALONE, _MOST_PAIRS = 8, 4  # suspects that are tried, the latest first
_MOST_OF_NOBODY = 2  # ends while none was announced that nobody repeats


class Blame:
    """Of one case. `rehearse(entries)` runs these alone in a new worker, without rows, and waits `wait_s`."""

    def __init__(self, case: Any) -> None:
        self._case = case  # a runner.parent.case.CaseRun
        self.cleared: set[int] = set()
        self.notes: dict[int, str] = {}
        self._of_nobody = 0

    def of_another(self, entry: Entry, lost: WorkerLost, ran: list[tuple[str, int, float]]) -> bool:
        """Whether the end of a worker is not the fault of `entry`, which was announced.

        `ran` holds (case, index, time) of what that worker was asked to prove. Whoever is found has its row.
        """
        own = self._case.planned.case.case_id
        before = [each for each in ran if each[:2] != (own, entry.index)]
        if not before or entry.index in self.cleared:
            return False
        wait_s = _wait_s(before)
        if self._case.rehearse([entry], wait_s) is not None:
            return False
        self.cleared.add(entry.index)
        indices = dict.fromkeys(index for case, index, _ in reversed(before) if case == own)
        entries = [self._case.planned.entries[index] for index in indices]
        self._find(entry, lost, entries, wait_s)
        return True

    def of_an_earlier(self, lost: WorkerLost | WorkerFailed, ran: list[tuple[str, int, float]]) -> bool:
        """Whether a worker that was lost while none was announced may be the fault of one that ran in it.

        Whoever is found has its row; the others start again, also where nobody is found, but not for ever.
        """
        if not ran or self._of_nobody >= _MOST_OF_NOBODY:
            return False
        if lost.status == "crashed":  # a limit is not waited for again
            for entries, words in self._suspected(ran):
                found = self._case.rehearse(entries, _wait_s(ran))
                if found and found.index in (None, entries[0].index):
                    self._row(self._case.waiting.pop(entries[0].index), lost, found.reason + words)
                    return True
        self._of_nobody += 1
        return True

    def _suspected(self, ran: list[tuple[str, int, float]]) -> Iterator[tuple[list[Entry], str]]:
        """Who may have ended a worker in which these ran: each alone, then with one that is yet to run."""
        own, waiting = self._case.planned.case.case_id, self._case.waiting
        indices = dict.fromkeys(index for case, index, _ in reversed(ran) if case == own and index in waiting)
        suspects = [waiting[index] for index in indices][:_MOST_ALONE]
        yield from (([one], ", also when it ran alone") for one in suspects)
        if others := [one for index, one in waiting.items() if index not in indices]:
            after = f", when {others[0].variant.name} runs after it"
            yield from (([one, others[0]], after) for one in suspects[:_MOST_PAIRS])

    def reason(self, entry: Entry, lost: WorkerLost | WorkerFailed) -> str:
        """The reason of a lost worker for the row of `entry`."""
        alone = "; alone in a new process it passed" if entry.index in self.cleared else ""
        return lost.reason + alone

    def _find(self, entry: Entry, lost: WorkerLost, suspects: list[Entry], wait_s: float) -> None:
        name = entry.variant.name
        for suspect in suspects[:_MOST_ALONE]:
            if found := self._case.rehearse([suspect], wait_s):
                words = f"{found.reason}, also when {name} had been called after it"
                return self._guilty(suspect, entry, words, lost)
        for suspect in suspects[:_MOST_PAIRS]:
            if found := self._case.rehearse([suspect, entry], wait_s):
                words = f"{found.reason}, when {name} runs after it in one process; each passes alone"
                return self._guilty(suspect, entry, words, lost)
        self._note(entry, lost, "something that ran in it before may be the cause")

    def _note(self, entry: Entry, lost: WorkerLost, words: str) -> None:
        once = f"its process ended once ({lost.reason}), and not when it ran alone"
        self.notes[entry.index] = f"{once}: {words}"

    def _guilty(self, suspect: Entry, entry: Entry, reason: str, lost: WorkerLost) -> None:
        if self._case.waiting.pop(suspect.index, None) is None:  # it has its row already
            return self._note(entry, lost, f"{suspect.variant.name} did that ({reason})")
        self._row(suspect, lost, reason)

    def _row(self, entry: Entry, lost: WorkerLost | WorkerFailed, reason: str) -> None:
        facts = {"status": lost.status, "stage": lost.stage, "reason": reason}
        self._case.row(entry, self._case.proven.get(entry.index, {}) | facts)


def _wait_s(ran: list[tuple[str, int, float]]) -> float:
    """For how long a process is watched that may end as one did in which these had run."""
    return min(time.monotonic() - ran[0][2] + _MARGIN_S, _LONGEST_S)
