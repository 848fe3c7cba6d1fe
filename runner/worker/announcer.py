"""What the worker does between timed calls: announces, reads the card, has outputs judged."""

from __future__ import annotations

import os
from typing import Any

from runner.check import poison
from runner.measure import nvml
from runner.measure.fresh import STORAGE, VALUES, Freshness
from runner.measure.samples import COLD
from runner.measure.turns import Series, Watch
from runner.process.faults import Tampered


class Announcer(Watch):
    """The watch of a `runner.worker.session.Session` over one measurement of the variants at `indices`.

    `each`: look after each call at what it left; else only while that costs little beside the timing.
    """

    def __init__(self, session: Any, indices: list[int], timing: str, each: bool = False) -> None:
        self.session, self.indices, self.timing, self.each = session, indices, timing, each
        self.case = session.cases[0]
        self.sampler = nvml.Sampler(session.card)
        self.sm_mhz: list[int | None] = []  # by round
        kinds = (VALUES,) if timing == "graph" else (VALUES, STORAGE)  # a graph has its addresses
        self.fresh = Freshness(len(indices), kinds)
        self._round, self._kind = 0, ""
        self._judged: bool | None = None
        self._fault = ""
        self._called: set[int] = set()  # since all was last seen to be as it was

    def step(self, index: int, what: str) -> None:
        self.session.emit("step", index=self.indices[index], stage="measure", what=what)

    def before_round(self, round_: int, new: bool | None) -> bool:
        """Redraw the inputs when the round is to be a fresh one."""
        self._round, self._kind = round_, "" if new is False else self.fresh.kind(bool(new))
        if self._kind:
            with self.fresh.checking():
                answer = self.session.ask("fresh", what=self._kind)
                self.case.redraw(answer["seed"], moved=self._kind == STORAGE)
        return bool(self._kind)

    def before(self, index: int) -> None:
        self._judged, self._fault = None, ""
        if self.timing in COLD:
            poison.lightly(self.case.output_bytes, self.session.device)

    def returned(self, output: Any) -> None:
        """Only now is it decided whether the output is judged: its call could not know."""
        if self._judged is None:
            self._judged = bool(self._kind) or self.fresh.judged()
        cold = self.timing in COLD
        if not (self._judged or cold):
            return
        fault = self.case.kind_fault(output)
        if self._judged:
            self._fault = fault
            if not fault:
                self.case.outbox.put(self.case.tensors(output))
        if cold and not fault:
            self.case.scrub(output)

    def timed(self, index: int) -> None:
        self._look(index, must=bool(self._judged))  # first: on changed inputs others' outputs are wrong
        if self._judged:
            place = {} if self._fault else self.case.outbox.place
            told = {"index": self.indices[index], "position": 0, "place": place, "fault": self._fault}
            with self.fresh.checking():
                self.session.ask("output", **told, round=self._round, call="")
                self.case.wipe()

    def unharmed(self, index: int) -> None:
        self._look(index, must=True)

    def _look(self, index: int, must: bool) -> None:
        """A variant that changes an input or the process when it is timed is caught at once, or soon after.

        Then it may have been another's call: who it was is found when each call is looked at.
        """
        self._called.add(index)
        if not (must or self.each or self.fresh.looked_at()):
            return
        with self.fresh.checking():
            known = self._called == {index}
            own = self.session.modules[self.indices[index]] if known else ""
            changed = self.session.state.changes(own=own)
            names = "" if changed else self.case.changed()
        if changed or names:
            who = self.indices[index] if known else None
            raise Tampered(who, f"global state: {changed}" if changed else f"its input {names}")
        self._called.clear()

    @property
    def lacking(self) -> bool:
        return self.fresh.lacking

    @property
    def checking_s(self) -> float:
        return self.fresh.spent_s

    @property
    def timing_s(self) -> float:
        return self.fresh.timing_s

    def between_rounds(self, round_: int) -> None:
        state = self.sampler.sample(force=round_ == 0)
        self.sm_mhz.append(state.sm_mhz if state else self.sm_mhz[-1] if self.sm_mhz else None)

    def card(self) -> dict[str, Any]:
        """The card's state while it was measured: columns, samples and what is to be said."""
        card, own = self.session.card, (os.getpid(), os.getppid(), self.session.judge)
        notes = [self.session.no_card] if self.session.no_card else []
        if card is not None:
            notes += [f"the GPU is shared with {other}" for other in card.others(own, using=2)]
        told = {"sm_mhz_samples": self.sm_mhz, "throttle": self.sampler.throttle, "card_notes": notes}
        return self.sampler.columns() | told


def wire(series: Series) -> dict[str, Any]:
    samples = series.samples
    return {
        "rounds": series.rounds,
        "turns": series.turns,
        "fresh": series.fresh,
        "beside_us": series.beside_us,
        "again_us": series.again_us,
        "warmup_us": series.warmup_us,
        "start_ns": [s.start_ns for s in samples],
        "device_us": [s.device_us for s in samples],
        "host_us": [s.host_us for s in samples],
        "held": sum(s.held for s in samples),
        "end_to_end_us": series.end_to_end_us,
        "stop_reason": series.stop_reason,
    }
