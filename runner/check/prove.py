"""Check one variant on its cases: call it as it will be timed, have the output judged, call it again.

What is right is not known in this process. A copy of each output goes to the judge, by way of the parent.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.build.inputs import grad_positions, make_inputs, output_dtypes, upstream_gradient
from runner.check import definition, fingerprint, guards, poison
from runner.check.exchange import Outbox, Part, same_bits
from runner.measure.samples import Trial
from runner.measure.untimed import Untimed
from runner.model import Case, Entry, Target

_LARGE = 64 << 20  # bytes of output: what is beside a case is let go above
_LATER_S = 0.2  # within which a wrong output that becomes right is said to


class OpenCase:
    """A case with its inputs on the device. `outbox(parts)` makes the memory that the judge reads."""

    def __init__(self, case: Case, outbox: Callable[[Sequence[Part]], Outbox]) -> None:
        self.case, self.seed = case, -1
        self.inputs: list[torch.Tensor] = []
        self.upstream: torch.Tensor | None = None
        self.parts: list[Part] = []
        self.grad_positions = grad_positions(case)
        self._make, self._outbox = outbox, None

    def draw(self, seed: int, out_shape: Sequence[int], shapes: Sequence[Sequence[int]]) -> None:
        """Have the inputs of a draw; what there is already stays."""
        if self.parts and len(self.inputs) == len(self.case.inputs) and self.seed == seed:
            return
        self.seed, self.inputs = seed, []
        self.inputs = make_inputs(self.case, seed)
        self.parts = [Part(tuple(s), d) for s, d in zip(shapes, output_dtypes(self.case), strict=True)]
        self._finish(out_shape)

    def redraw(self, seed: int, moved: bool) -> None:
        """Other values: in the same memory, or in memory that nobody has seen yet."""
        shape = None if self.upstream is None else self.upstream.shape
        self.seed, old = seed, self.inputs  # kept until the new ones are there: they lie elsewhere
        self.inputs = make_inputs(self.case, seed, () if moved else old)
        del old
        self._finish(shape)

    def _finish(self, out_shape: Sequence[int] | None) -> None:
        if self.grad_positions:
            self.upstream = upstream_gradient(self.case, out_shape, self.seed)
        self.prints = fingerprint.fingerprints(self._shared())

    def _shared(self) -> list[torch.Tensor]:
        return [*self.inputs, *([] if self.upstream is None else [self.upstream])]

    def restore(self) -> None:
        """Whatever a variant did to the shared inputs, the next one finds them as they were."""
        self.inputs = make_inputs(self.case, self.seed)
        self._finish(None if self.upstream is None else self.upstream.shape)

    def changed(self) -> str:
        """Names of the inputs that are no longer what they were; empty when all are."""
        names = [*(spec.name for spec in self.case.inputs), "upstream gradient"]
        now = fingerprint.fingerprints(self._shared())
        return ", ".join(names[i] for i in fingerprint.changed(self.prints, now))

    def kind_fault(self, output: Any) -> str:
        """Why an output is not what it must be, its values apart; empty when it is."""
        tensors = self.tensors(output)
        if len(tensors) != len(self.parts):
            return f"returned {len(tensors)} gradients, not {len(self.parts)}"
        faults = (
            definition.kind_fault(x, p.shape, p.dtype, self.case.device) for x, p in zip(tensors, self.parts)
        )
        return next(filter(None, faults), "")

    def tensors(self, output: Any) -> list[Any]:
        return list(output) if self.grad_positions else [output]

    @property
    def output_bytes(self) -> list[int]:
        return [torch.Size(part.shape).numel() * part.dtype.itemsize for part in self.parts]

    @property
    def outbox(self) -> Outbox:
        if self._outbox is None:
            self._outbox = self._make(self.parts)
        return self._outbox

    def overwritten(self, output: Any, later: Any) -> str:
        """Why a later call's output lies where one lies that is still held; empty when it does not."""
        given = {_memory(x) for x in self._shared()}
        there = {_memory(x) for x in self.tensors(output) if x.numel()} - given
        if there.isdisjoint(map(_memory, self.tensors(later))):
            return ""
        return "returned memory that an earlier output lies in, which somebody may still hold"

    def wipe(self) -> None:
        """Leave no copy of an output that was judged: other variants have the same inputs."""
        if self._outbox is not None:
            self._outbox.wipe()

    def scrub(self, output: Any) -> None:
        """Fill a whole output that nobody needs any more, where it lies in no input, with what is no answer.

        On a CPU large blocks go back to the system, and come again as zeros.
        """
        given = {_memory(x) for x in self._shared()}
        with torch.inference_mode():  # it may come from there
            for x in self.tensors(output):
                if x.numel() and _memory(x) not in given and poison.comes_again(x.nbytes, self.case.device):
                    x.fill_(torch.nan if x.is_floating_point() else -1)

    def close(self) -> None:
        if self._outbox is not None:
            self._outbox.close()
        self._outbox, self.inputs, self.upstream = None, [], None


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


@dataclass
class Proof:
    """A variant's facts on a case; `trial` is what may be timed when nothing spoke against it."""

    facts: dict[str, Any]
    trial: Trial | None = field(default=None)


# Asks the judge about the copies in an outbox, a call's, and says whether they were right.
Judged = Callable[[int, Outbox, str], bool]


def prove(
    cases: dict[int, OpenCase],
    entry: Entry,
    fn: Callable,
    judged: Judged,
    announce: Callable[[str], None] = lambda where: None,
) -> Proof:
    """Check a variant on the cases at these positions; the first that is wrong decides.

    `announce` is told which one beside the case itself it is. One of those may be refused: it does not apply.
    """
    facts: dict[str, Any] = {}
    refused: list[str] = []
    for position, one in cases.items():
        announce(one.case.where)
        try:
            found = _prove_one(position, one, entry, fn, judged)
        except NotImplementedError:
            if not one.case.where:
                raise
            refused.append(one.case.where)
            continue
        facts = {**found, **facts} if facts and found["status"] == "ok" else found
        if facts["status"] != "ok":
            return Proof(facts | {"position": position})
        if one.case.where and sum(one.output_bytes) > _LARGE:
            one.close()
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        facts["notes"] = [f"says that it cannot do what is checked beside the case: {refused[0]}{more}"]
    trial = make_trial(next(iter(cases.values())), entry, fn)
    trial.checked_us = min(facts["untimed_us"], default=0.0)
    return Proof(facts, trial)


def make_trial(one: OpenCase, entry: Entry, fn: Callable) -> Trial:
    """The timed call. Backward: the forward runs in `prepare`, only the gradient call is timed.

    It takes the inputs that the case has when it is called: they are redrawn now and then.
    """
    arguments = {**one.case.attrs, **entry.variant.kwargs, **entry.params}
    wanted = one.grad_positions
    if not wanted:
        return Trial(lambda: fn(*one.inputs, **arguments))
    kept: list[Any] = [None, None]

    def forward() -> None:
        kept[:] = None, None
        leaves = [x.detach().requires_grad_(i in wanted) for i, x in enumerate(one.inputs)]
        kept[:] = fn(*leaves, **arguments), [leaves[i] for i in wanted]

    def backward() -> Any:
        return torch.autograd.grad(kept[0], kept[1], one.upstream)

    return Trial(backward, forward)


def _prove_one(position: int, one: OpenCase, entry: Entry, fn: Callable, judged: Judged) -> dict:
    """Facts. Beside the case itself one call has to do."""
    trial = make_trial(one, entry, fn)
    beside = bool(one.case.where)
    try:
        with poison.poisoned(one.output_bytes, one.case.device):
            fence = guards.Fence(one.output_bytes if sum(one.output_bytes) < _LARGE else (), one.case.device)
            output, first_ms, peak_mb = _first_call(trial, one)
        facts = {"first_call_ms": first_ms, "peak_memory_mb": peak_mb}
        if fence.broken():
            fence.leave(output)
            reason = "wrote out of bounds, next to its output"
            return facts | {"status": "wrong", "stage": "check", "reason": reason, "fatal": True}
        right, reason = _judge(position, one, output, judged, "")
        same = None
        if right and not reason and not beside:
            may_alias = entry.variant.compile is not None  # torch's CUDA graphs do, and say so
            same, right, reason = _again(position, one, trial, output, judged, may_alias)
        del output
        if right and not reason and not beside:
            facts["untimed_us"], reason = _habits(one, entry, trial)
        reason = reason or ("" if not (names := one.changed()) else f"changed its input {names}")
    finally:
        if _alive(one.case.device):
            one.wipe()
            if one.changed():
                one.restore()
    status = "ok" if right and not reason else "wrong"
    stage = "check" if status == "wrong" else ""
    return facts | {"status": status, "stage": stage, "reason": reason, "deterministic": same}


def _habits(one: OpenCase, entry: Entry, trial: Trial) -> tuple[list[float], str]:
    """How long its calls take in microseconds, and what is wrong with a variant whose outputs are right."""

    def call() -> None:
        trial.prepare()
        trial.call()
        synchronize()

    synchronize = functools.partial(_synchronize, one.case.device)
    if name := guards.borrowed(entry.variant, _theirs(one.case), call):
        return [], f"declares a kernel of its own and calls the built-in's {name}"
    if entry.interpreted:  # what it keeps and how long it takes is the interpreter's, and it is never timed
        return [], ""
    untimed = Untimed(trial, synchronize)
    kept = guards.kept(untimed.call, one.case.device)
    return untimed.settle(), f"holds memory: {kept}" if kept else ""


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def _theirs(case: Case) -> list[Target]:
    """Whose operators are no kernel of a variant's own."""
    return [case.reference, *([case.builtin.target] if case.builtin else [])]


def _alive(device: str) -> bool:
    """Whether the CUDA context still works; a poisoned one goes with its worker."""
    try:
        _synchronize(device)
    except RuntimeError:
        return False
    return True


def _judge(position: int, one: OpenCase, output: Any, judged: Judged, call: str) -> tuple[bool, str]:
    """Whether an output that was put when its call returned is right, and what is wrong by itself."""
    fault = one.kind_fault(output)
    if fault:
        return False, fault
    right = judged(position, one.outbox, call)
    if not right:
        time.sleep(_LATER_S)  # nothing is lost by it
    if one.outbox.differs(one.tensors(output)):
        return False, "changed its output after it had returned: work goes on elsewhere"
    return right, ""


def _again(
    position: int, one: OpenCase, trial: Trial, output: Any, judged: Judged, may_alias: bool
) -> tuple[bool, bool, str]:
    """A second call: whether it gave the same bits, whether it is right, and what is wrong by itself."""
    second = _call(trial, one)
    whole = not one.kind_fault(second)
    alias = one.overwritten(output, second) if whole and not may_alias else ""
    if whole and all(map(same_bits, one.tensors(output), one.tensors(second))):
        return True, True, alias
    right, reason = _judge(position, one, second, judged, "right once, wrong when called again: ")
    reason = f"right once, wrong when called again: {reason}" if reason else alias
    return False, right, reason


def _call(trial: Trial, one: OpenCase) -> Any:
    """Call it; a copy of the output is taken at once, before anything waits for the device."""
    trial.prepare()
    output = trial.call()
    if not one.kind_fault(output):
        one.outbox.put(one.tensors(output))
    _synchronize(one.case.device)
    return output


def _first_call(trial: Trial, one: OpenCase) -> tuple[Any, float, float | None]:
    """Output, milliseconds (just-in-time compilation included), and peak memory it added in MB."""
    device = one.case.device
    one.outbox  # noqa: B018 - its memory is not the variant's
    before = _reset_peak(device)
    start = time.perf_counter()
    output = _call(trial, one)
    elapsed = (time.perf_counter() - start) * 1e3
    peak = None if before is None else (torch.cuda.max_memory_allocated(device) - before) / 1e6
    return output, elapsed, peak


def _reset_peak(device: str) -> int | None:
    if device == "cpu":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
