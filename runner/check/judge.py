"""Who knows the right answers, in the process of `runner.check.__main__`.

It draws the inputs that the worker draws, evaluates the op's definition on them in float64 and compares
copies of outputs. No variant is ever imported here, and nothing that a worker sends is unpickled.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from runner.build.inputs import grad_positions, make_inputs, output_dtypes, upstream_gradient
from runner.build.variant import StaleProcess, build
from runner.check import definition, probes
from runner.check.bounds import bound
from runner.check.definition import Errors, Expected, kind_fault
from runner.check.exchange import Inbox, Part, Unreadable
from runner.files import canonical
from runner.model import Case, PlannedCase, Target, Variant
from runner.process import serving
from runner.process.faults import said

_ROOM = 0.3  # of the memory, for the next draw


def definition_of(target: Target) -> Callable:
    """The reference's callable."""
    return build(Variant("reference", target), "cpu", Path()).fn


class _Failed(Exception):
    """The op's own definition raised: no variant can be checked."""


@dataclass
class _Draw:
    """One drawing of a case's inputs, and what is expected of it by the arguments of the definition."""

    number: int
    seed: int
    inputs: list[torch.Tensor]
    expected: dict[str, list[Expected]] = field(default_factory=dict)
    out_shape: tuple[int, ...] = ()
    upstream: torch.Tensor | None = None
    builtin: dict[str, list[Errors] | None] = field(default_factory=dict)
    probed: dict[tuple, probes.Found] = field(default_factory=dict)


class Judge:
    """One method per request."""

    def __init__(self, answers: serving.Answers) -> None:
        self.device, self.inbox = "cpu", Inbox("cpu")
        self.cases: list[Case] = []
        self.draws: dict[int, _Draw] = {}
        self.definition: Callable | None = None

    def hello(self, device: str, threads: int) -> dict[str, Any]:
        self.device, self.inbox = device, Inbox(device)
        sys.dont_write_bytecode = True  # a .pyc is matched by whole seconds and size: too coarse for edits
        if threads:
            torch.set_num_threads(threads)
        if device != "cpu":
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)
        gc.collect()
        gc.freeze()
        return {"facts": {}}

    def accept(self, worker: int, place: dict[str, Any], count: int) -> dict[str, Any]:
        """Whether a worker's device memory, which holds 0, 1, 2 ..., can be read from here."""
        try:
            (copy,) = self.inbox.read(worker, place, [Part((count,), torch.int64)])
            return {"same": torch.equal(copy.cpu(), torch.arange(count)), "why": ""}
        except (OSError, RuntimeError, Unreadable) as error:
            return {"same": False, "why": said(error)}
        finally:
            self.inbox.close()

    def open(self, planned: PlannedCase) -> dict[str, Any]:
        """Take a case and what is checked beside it, in the order of `planned.checked`."""
        self.close()
        try:
            self.definition = definition_of(planned.case.reference)
        except StaleProcess:
            return {"status": "stale"}
        self.cases = list(planned.checked)
        return {"status": "open"}

    def close(self) -> None:
        self.cases, self.draws = [], {}
        self.inbox.close()
        if self.device != "cpu":
            torch.cuda.empty_cache()

    def expect(self, position: int, number: int, seed: int, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Have the right answer to a draw ready. The shapes of the op's output and of what is compared."""
        try:
            expected = self._expected(position, number, seed, kwargs)
        except _Failed as failed:
            return {"status": "failed", "reason": str(failed)}
        shapes = [list(one.values.shape) for one in expected]
        return {"status": "ready", "out_shape": list(self.draws[position].out_shape), "shapes": shapes}

    def _expected(self, position: int, number: int, seed: int, kwargs: dict) -> list[Expected]:
        draw, key = self._draw(position, number, seed), canonical(kwargs)
        if key not in draw.expected:
            try:
                self._evaluate(position, draw, key, kwargs)
            except Exception as error:  # the op's own code, whatever it raises
                raise _Failed(f"the op's reference failed: {said(error)}") from error
        return draw.expected[key]

    def _draw(self, position: int, number: int, seed: int) -> _Draw:
        draw = self.draws.get(position)
        if draw is None or (draw.number, draw.seed) != (number, seed):
            self.draws.pop(position, None)  # its memory first
            self._make_room()
            draw = self.draws[position] = _Draw(number, seed, make_inputs(self.cases[position], seed))
        return draw

    def _make_room(self) -> None:
        """Where memory is short, what is beside the case is evaluated again when it is asked for again."""
        if self._free() < _ROOM:
            for position in [p for p in self.draws if self.cases[p].where]:
                del self.draws[position]
            if self.device != "cpu":
                torch.cuda.empty_cache()

    def _free(self) -> float:
        """The share of the device's memory that nobody uses."""
        if self.device == "cpu":
            return os.sysconf("SC_AVPHYS_PAGES") / os.sysconf("SC_PHYS_PAGES")
        free, total = torch.cuda.mem_get_info(self.device)
        return free / total

    def _evaluate(self, position: int, draw: _Draw, key: str, kwargs: dict[str, Any]) -> None:
        case = self.cases[position]
        arguments = {**case.attrs, **case.reference_kwargs, **kwargs}

        def upstream(out: torch.Tensor) -> torch.Tensor:
            draw.out_shape = tuple(out.shape)
            return upstream_gradient(case, out.shape, draw.seed)

        values, draw.upstream = definition.reference(
            self.definition, draw.inputs, arguments, grad_positions(case), upstream
        )
        if draw.upstream is None:
            draw.out_shape = tuple(values[0].shape)
        dtypes = output_dtypes(case)
        draw.expected[key] = [Expected(v, d) for v, d in zip(values, dtypes, strict=True)]
        self._synchronize()  # nothing of this may still run while a variant is timed

    def look(
        self,
        position: int,
        number: int,
        seed: int,
        kwargs: dict[str, Any],
        accuracy: str,
        unit: str,
        worker: int,
        place: dict[str, Any],
        full: bool,
    ) -> dict[str, Any]:
        """Compare the worker's copies with a draw's answers. `full` gives the figures of right ones too.

        A case whose right answer cannot be told from a wrong one is said to be degenerate.
        """
        try:
            expected = self._expected(position, number, seed, kwargs)
        except _Failed as failed:
            return {"status": "failed", "reason": str(failed)}
        draw, key = self.draws[position], canonical(kwargs)
        builtin = self._builtin(position, draw, key) if full else None
        limits = [None] * len(expected) if builtin is None else [one.norm_rel_err for one in builtin]
        bounds = [bound(e.dtype, accuracy, unit, lim, e.apart) for e, lim in zip(expected, limits)]
        own = full and not self.cases[position].where
        found = self._probed(draw, (key, accuracy, unit), expected, bounds) if own else None
        parts = [Part(tuple(one.values.shape), one.dtype) for one in expected]
        try:
            copies = self.inbox.read(worker, place, parts)
        except Unreadable as lost:
            return vars(Errors(reason=str(lost)))
        errors = [definition.compare(*each, full) for each in zip(copies, expected, bounds, strict=True)]
        self._synchronize()
        told = vars(definition.worst(errors)) | {"over_builtin": _over(errors, builtin)}
        return told | {"tolerance": bounds[0].element} | (vars(found) if found else {})

    def _probed(self, draw: _Draw, key: tuple, expected: list, bounds: list) -> probes.Found:
        if key not in draw.probed:
            draw.probed[key] = probes.probe(expected, bounds, draw.inputs)
        return draw.probed[key]

    def _builtin(self, position: int, draw: _Draw, key: str) -> list[Errors] | None:
        """The built-in's own errors on a draw; None where there is none, or it cannot do this."""
        case = self.cases[position]
        if case.builtin is None:
            return None
        if key not in draw.builtin:
            draw.builtin[key] = self._called(case, draw, draw.expected[key])
        return draw.builtin[key]

    def _called(self, case: Case, draw: _Draw, expected: list) -> list[Errors] | None:
        call = functools.partial(
            build(case.builtin, self.device, Path()).fn, **case.attrs, **case.builtin.kwargs
        )
        try:
            outputs = definition.outputs(call, draw.inputs, grad_positions(case), lambda out: draw.upstream)
        except (RuntimeError, NotImplementedError, TypeError):  # torch has no such kernel
            return None
        if any(kind_fault(o, e.values.shape, e.dtype, self.device) for o, e in zip(outputs, expected)):
            return None
        return [definition.compare(o.detach(), e, bound(e.dtype)) for o, e in zip(outputs, expected)]

    def _synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


def _over(errors: list[Errors], builtin: list[Errors] | None) -> float | None:
    """A variant's error over the built-in's, of norms; the worst of the outputs. None: that says nothing."""
    if builtin is None:
        return None
    pairs = [(mine.norm_rel_err, own.norm_rel_err) for mine, own in zip(errors, builtin)]
    ratios = [mine / own if own else 1.0 for mine, own in pairs if own or not mine]
    return max(ratios) if len(ratios) == len(pairs) else None
