"""What the worker does between timed calls: tells the parent, reads the card, checks outputs and state."""

from __future__ import annotations

import os
from typing import Any

from runner import nvml
from runner.faults import Tampered
from runner.measure import Series, Watch


class Announcer(Watch):
    """The watch of a `runner.session.Session` over one measurement of the variants at `indices`."""

    def __init__(self, session: Any, indices: list[int]) -> None:
        self.session, self.indices, self.late = session, indices, {}
        self.sampler = nvml.Sampler(session.card)
        self.sm_mhz: list[int | None] = []  # by round
        self.versions = [x._version for x in session.cases[0].inputs]

    def step(self, index: int, what: str) -> None:
        self.session.emit("step", index=self.indices[index], stage="measure", what=what)

    def timed(self, index: int) -> None:
        """A variant that changes an input or the process when it is timed is caught in the act."""
        inputs = self.session.cases[0].inputs
        versions = [x._version for x in inputs]
        if versions != self.versions:
            at = next(i for i, (a, b) in enumerate(zip(versions, self.versions)) if a != b)
            name = self.session.cases[0].case.inputs[at].name
            raise Tampered(self.indices[index], f"its input {name}")
        if changed := self.session.state.changes():
            raise Tampered(self.indices[index], f"global state: {changed}")

    def between_rounds(self, round_: int) -> None:
        state = self.sampler.sample(force=round_ == 0)
        self.sm_mhz.append(state.sm_mhz if state else self.sm_mhz[-1] if self.sm_mhz else None)

    def card(self) -> dict[str, Any]:
        """The card's state while it was measured: columns, samples and what is to be said."""
        card, own = self.session.card, (os.getpid(), os.getppid())
        notes = [self.session.no_card] if self.session.no_card else []
        if card is not None:
            notes += [f"the GPU is shared with {other}" for other in card.others(own)]
        told = {"sm_mhz_samples": self.sm_mhz, "throttle": self.sampler.throttle, "card_notes": notes}
        return self.sampler.columns() | told

    def output(self, index: int, output: Any) -> None:
        proof = self.session.proofs[self.indices[index]]
        reason = proof.recheck(output)
        if reason:
            self.late[self.indices[index]] = f"right when checked, wrong when timed: {reason}"


def wire(series: Series) -> dict[str, Any]:
    samples = series.samples
    return {
        "rounds": series.rounds,
        "turns": series.turns,
        "start_ns": [s.start_ns for s in samples],
        "device_us": [s.device_us for s in samples],
        "host_us": [s.host_us for s in samples],
        "held": sum(s.held for s in samples),
        "end_to_end_us": series.end_to_end_us,
        "stop_reason": series.stop_reason,
    }
