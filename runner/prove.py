"""Check one variant on a case: call it as it will be timed, compare, call again, compare again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runner import check
from runner.build import build
from runner.inputs import make_inputs, torch_dtype, upstream_gradient
from runner.model import Case, Entry, Target, Variant
from runner.plan import canonical
from runner.samples import Trial

ERRORS = ("max_abs_err", "max_rel_err", "norm_rel_err", "max_ulp")


def definition_of(target: Target) -> Callable:
    """The reference's callable. It is the op's own definition: what it raises is not a variant's fault."""
    return build(Variant("reference", target), "cpu", Path()).fn


class OpenCase:
    """A case with its inputs on the device, and its references by the arguments they took."""

    def __init__(self, case: Case, definition: Callable, seed: int) -> None:
        self.case, self.definition, self.seed = case, definition, seed
        self.inputs: list[torch.Tensor] = []
        self._known: dict[str, tuple[list[torch.Tensor], torch.Tensor | None]] = {}

    def draw(self) -> None:
        if not self.inputs:
            self.inputs = make_inputs(self.case, self.seed)

    def reference(self, kwargs: dict[str, Any]) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """Expected tensors in float64 (the output, or the gradients) and the upstream gradient."""
        key = canonical(kwargs)
        if key not in self._known:
            self.draw()
            arguments = {**self.case.attrs, **self.case.reference_kwargs, **kwargs}
            self._known[key] = check.reference(
                self.definition, self.inputs, arguments, self.grad_positions, self._upstream
            )
        return self._known[key]

    def _upstream(self, out: torch.Tensor) -> torch.Tensor:
        return upstream_gradient(self.case, out, self.seed)

    @property
    def grad_positions(self) -> list[int]:
        return [i for i, spec in enumerate(self.case.inputs) if spec.name in self.case.grad]

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Expected dtype of each output (gradients have their input's)."""
        if self.case.direction == "forward":
            return [torch_dtype(self.case.out_dtype)]
        return [torch_dtype(self.case.inputs[i].dtype) for i in self.grad_positions]


@dataclass
class Proof:
    """A variant's verdict on a case; `trial` is what may be timed when the status is ok."""

    facts: dict[str, Any]
    trial: Trial | None = None
    recheck: Callable[[Any], str] = lambda output: ""


def prove(cases: list[OpenCase], entry: Entry, fn: Callable) -> Proof:
    """The verdict over several cases: the first that is wrong decides; errors are the worst of all."""
    proof, worst = None, {}
    for one in cases:
        proof = _prove_one(one, entry, fn)
        if entry.interpreted and proof.facts["reason"]:
            sizes = " ".join(f"{dim}={size}" for dim, size in one.case.shape.items())
            proof.facts["reason"] = f"at {sizes}: {proof.facts['reason']}"
        for name in ERRORS:
            worst[name] = max(worst.get(name, 0.0), proof.facts[name])
        if proof.facts["status"] != "ok":
            return proof
    return Proof(proof.facts | worst, proof.trial, proof.recheck)


def make_trial(one: OpenCase, entry: Entry, fn: Callable, upstream: torch.Tensor | None) -> Trial:
    """The timed call. Backward: the forward runs in `prepare`, only the gradient call is timed."""
    arguments = {**one.case.attrs, **entry.variant.kwargs, **entry.params}
    if upstream is None:
        return Trial(lambda: fn(*one.inputs, **arguments))
    wanted = one.grad_positions
    leaves = [x.detach().requires_grad_(i in wanted) for i, x in enumerate(one.inputs)]
    kept: list[Any] = [None]

    def forward() -> None:
        kept[0] = None
        kept[0] = fn(*leaves, **arguments)

    def backward() -> Any:
        return torch.autograd.grad(kept[0], [leaves[i] for i in wanted], upstream)

    return Trial(backward, forward)


def _prove_one(one: OpenCase, entry: Entry, fn: Callable) -> Proof:
    expected, upstream = one.reference(entry.variant.kwargs)
    trial = make_trial(one, entry, fn, upstream)

    def errors_of(output: Any) -> check.Errors:
        return _compare(output, one, expected, entry)

    with _inputs_kept(one) as kept:
        sizes = [e.numel() * d.itemsize for e, d in zip(expected, one.dtypes)]
        with check.poisoned(sizes, one.case.device):
            output, first_ms, peak_mb = _first_call(trial, one.case.device)
        errors = errors_of(output)
        reason = errors.reason or _inputs_changed(one, kept)
        same = None
        if not reason:
            same, reason = _again(trial, output, one, errors_of)
    facts = {
        "status": "wrong" if reason else "ok",
        "stage": "check" if reason else "",
        "reason": reason,
        **{name: getattr(errors, name) for name in ERRORS},
        "deterministic": same,
        "first_call_ms": first_ms,
        "peak_memory_mb": peak_mb,
    }
    return Proof(facts, trial, lambda output: errors_of(output).reason)


@contextlib.contextmanager
def _inputs_kept(one: OpenCase) -> Iterator[list[torch.Tensor]]:
    """Whatever a variant does to the shared inputs, the next variant finds them as they were."""
    before = check.snapshot(one.inputs)
    try:
        yield before
    finally:
        with contextlib.suppress(torch.AcceleratorError):  # a poisoned context: the worker is replaced
            for i in check.changed(one.inputs, before):
                one.inputs[i].copy_(before[i])


def _again(trial: Trial, output: Any, one: OpenCase, errors_of: Callable) -> tuple[bool, str]:
    """A second call: whether it gave the same bits, and what is wrong with it when it did not."""
    second = _call(trial, one.case.device)
    if _identical(output, second):
        return True, ""
    reason = errors_of(second).reason
    return False, reason and f"right once, wrong when called again: {reason}"


def _call(trial: Trial, device: str) -> Any:
    trial.prepare()
    output = trial.call()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return output


def _first_call(trial: Trial, device: str) -> tuple[Any, float, float | None]:
    """Output, milliseconds (just-in-time compilation included), and peak memory it added in MB."""
    before = _reset_peak(device)
    start = time.perf_counter()
    output = _call(trial, device)
    elapsed = (time.perf_counter() - start) * 1e3
    peak = None if before is None else (torch.cuda.max_memory_allocated(device) - before) / 1e6
    return output, elapsed, peak


def _reset_peak(device: str) -> int | None:
    if device == "cpu":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _tensors(output: Any, one: OpenCase) -> list[Any]:
    return list(output) if one.case.direction == "backward" else [output]


def _compare(output: Any, one: OpenCase, expected: list[torch.Tensor], entry: Entry) -> check.Errors:
    """The worst of the outputs; the first wrong one decides."""
    found = []
    for tensor, wanted, dtype in zip(_tensors(output, one), expected, one.dtypes, strict=True):
        found.append(check.compare(tensor, wanted, dtype, one.case.device, entry.variant.accuracy))
    wrong = next((e for e in found if e.reason), None)
    return wrong or check.Errors(*(max(getattr(e, name) for e in found) for name in ERRORS))


def _identical(first: Any, second: Any) -> bool:
    """Bit for bit, NaN equal to NaN."""
    firsts = first if isinstance(first, tuple) else (first,)
    seconds = second if isinstance(second, tuple) else (second,)
    return not check.changed(seconds, firsts)


def _inputs_changed(one: OpenCase, before: list[torch.Tensor]) -> str:
    names = [one.case.inputs[i].name for i in check.changed(one.inputs, before)]
    return f"changed its input {', '.join(names)}" if names else ""
