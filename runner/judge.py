"""The process that knows the right answers: `python -m runner.judge <fd>`, started by `supervisor`.

It draws the inputs that the worker draws, evaluates the op's definition on them in float64 and compares
copies of outputs. No variant is ever imported here, and nothing that a worker sends is unpickled.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from runner import check, serving
from runner.build import StaleProcess, build
from runner.exchange import Inbox, Part
from runner.faults import said
from runner.inputs import grad_positions, make_inputs, output_dtypes, upstream_gradient
from runner.model import Case, PlannedCase, Target, Variant
from runner.plan import canonical

REQUESTS = ("hello", "accept", "open", "expect", "look", "close")


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
    expected: dict[str, list[check.Expected]] = field(default_factory=dict)
    out_shape: tuple[int, ...] = ()


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
        except (OSError, RuntimeError) as error:
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

    def _expected(self, position: int, number: int, seed: int, kwargs: dict) -> list[check.Expected]:
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
            draw = self.draws[position] = _Draw(number, seed, make_inputs(self.cases[position], seed))
        return draw

    def _evaluate(self, position: int, draw: _Draw, key: str, kwargs: dict[str, Any]) -> None:
        case = self.cases[position]
        arguments = {**case.attrs, **case.reference_kwargs, **kwargs}

        def upstream(out: torch.Tensor) -> torch.Tensor:
            draw.out_shape = tuple(out.shape)
            return upstream_gradient(case, out.shape, draw.seed)

        values, given = check.reference(
            self.definition, draw.inputs, arguments, grad_positions(case), upstream
        )
        if given is None:
            draw.out_shape = tuple(values[0].shape)
        dtypes = output_dtypes(case)
        draw.expected[key] = [check.Expected(v, d) for v, d in zip(values, dtypes, strict=True)]
        self._synchronize()  # nothing of this may still run while a variant is timed

    def look(
        self,
        position: int,
        number: int,
        seed: int,
        kwargs: dict[str, Any],
        accuracy: str,
        worker: int,
        place: dict[str, Any],
        full: bool,
    ) -> dict[str, Any]:
        """Compare the worker's copies with a draw's answers. `full` gives the figures of right ones too."""
        try:
            expected = self._expected(position, number, seed, kwargs)
        except _Failed as failed:
            return {"status": "failed", "reason": str(failed)}
        parts = [Part(tuple(one.values.shape), one.dtype) for one in expected]
        found = [
            check.compare(output, one, accuracy, full)
            for output, one in zip(self.inbox.read(worker, place, parts), expected, strict=True)
        ]
        self._synchronize()
        return vars(check.worst(found))

    def _synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


def main(argv: list[str]) -> None:
    serving.serve(serving.prepare(int(argv[1])), Judge, REQUESTS)


if __name__ == "__main__":
    main(sys.argv)
