"""Has the check teeth on this case? Wrong outputs, to be refused by the comparison that variants meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from runner.check.bounds import Bound
from runner.check.definition import Expected, refused

_FEW = 16  # elements; a smaller output may hold values that no bound tells apart


@dataclass(frozen=True)
class Found:
    """`degenerate`: what wrong output passes, empty when none does. `asked`: how many there were to try."""

    degenerate: str
    asked: int


def probe(expected: Sequence[Expected], bounds: Sequence[Bound], inputs: Sequence[torch.Tensor]) -> Found:
    """Try every wrong output on every expected one. Those that happen to be right there are no wrong ones."""
    asked = 0
    for one, bound in zip(expected, bounds, strict=True):
        right = one.values.to(one.dtype).contiguous()
        for name, wrong in _wrong(one, right, inputs):
            if _same(wrong, right):
                continue
            is_refused = refused(wrong, one, bound)
            if not is_refused and right.numel() >= _FEW:
                return Found(name, asked)
            asked += is_refused
    return Found("", asked)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _wrong(
    expected: Expected, right: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each wrong output is made when it is asked for: they are as large as the right one."""
    if right.numel() == 0:
        return
    yield "zeros", torch.zeros_like(right)
    finite = expected.values.isfinite()
    kept = torch.where(finite, expected.values, 0)
    mean = (kept.sum() / finite.sum().clamp_min(1)).to(right.dtype)
    yield "a constant", mean.expand(right.shape).contiguous()
    for x in inputs:
        if x.shape == right.shape:
            yield "an input", x.detach().to(right.dtype).contiguous()
    yield "memory that was never written", _unwritten(right)
    yield "the values of other places", right.reshape(-1).roll(1).view(right.shape)
    large, small = kept.abs().reshape(-1).argmax(), kept.reshape(-1).argmin()
    yield "one wrong element", _with(right, large, right.reshape(-1)[large] == 0)
    swapped = right.clone().reshape(-1)
    large = kept.reshape(-1).argmax()
    swapped[large], swapped[small] = right.reshape(-1)[small], right.reshape(-1)[large]
    yield "a swapped pair", swapped.view(right.shape)


def _unwritten(right: torch.Tensor) -> torch.Tensor:
    return torch.full(right.shape, torch.nan if right.is_floating_point() else -1, device=right.device).to(
        right.dtype
    )


def _with(right: torch.Tensor, at: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    wrong = right.clone()
    wrong.view(-1)[at] = value.to(right.dtype)
    return wrong
