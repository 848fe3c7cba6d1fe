"""Is it right? A variant's output against the op's definition in float64, on the same inputs.

The rule (METHODOLOGY.md, "The check"): with r the reference, o the output and rms the root mean
square of the finite r, |o - r| <= t * (|r| + rms) everywhere; a form judged by norm needs
||o - r|| <= t * ||r||, and the former with sqrt(t). An error below the dtype's smallest number counts
for nothing: float64 goes on where the dtype underflows. NaN and infinities must stand where the
reference, rounded to the output's dtype, has them. `runner.check.bounds` says what t is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch

from runner.check.bounds import Bound

# Elements compared at once: about 1 GiB of temporaries on a GPU; on a CPU they stay in its cache.
_CHUNKS = {"cpu": 1 << 17, "cuda": 1 << 25}
_UNDER_HALF = 0.5 - 2.0**-20


@dataclass(frozen=True)
class Errors:
    """How far an output is from the reference; `reason` is empty when it is within the rule."""

    max_abs_err: float = 0.0
    max_rel_err: float = 0.0
    norm_rel_err: float = 0.0
    max_ulp: float = 0.0
    scaled_err: float = 0.0  # the largest |o - r| / (|r| + rms), which the elementwise rule bounds
    reason: str = ""


def reference(
    definition: Callable,
    inputs: Sequence[torch.Tensor],
    arguments: dict,
    grad: Sequence[int],
    upstream: Callable,
) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """The op's definition in float64: its output, or its gradients.

    `grad` holds the positions of the inputs to differentiate (empty: forward), `upstream` gives the
    output's gradient for an output. Returns the expected tensors and the upstream gradient used.
    """
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    given: list[torch.Tensor] = []

    def widened(out: torch.Tensor) -> torch.Tensor:
        given.append(upstream(out))
        return given[0].double()

    call = functools.partial(definition, **arguments)
    return outputs(call, wide, grad, widened), given[0] if given else None


def outputs(
    call: Callable, inputs: Sequence[torch.Tensor], grad: Sequence[int], upstream: Callable
) -> list[torch.Tensor]:
    """A call's output, or its gradients for the inputs at these positions."""
    if not grad:
        with torch.no_grad():
            return [call(*inputs)]
    # detach: .double() of a float64 tensor is the tensor itself
    leaves = [x.detach().requires_grad_(i in grad) for i, x in enumerate(inputs)]
    with torch.enable_grad():
        out = call(*leaves)
    return list(torch.autograd.grad(out, [leaves[i] for i in grad], upstream(out)))


class Expected:
    """What one output must be: values in float64, the dtype they come in, and their size.

    `plain`: all of them finite in that dtype too, so that one comparison says whether an output is right.
    `apart`: the largest |o - r| / (|r| + rms) by which no whole number is taken for another; infinite unless
    all values are whole and the dtype tells halves at the largest of them.
    """

    def __init__(self, values: torch.Tensor, dtype: torch.dtype) -> None:
        self.values, self.dtype = values, dtype
        square, count, most, whole = 0.0, 0, 0.0, dtype.is_floating_point
        for piece in _pieces(values.reshape(-1)):
            finite = piece.isfinite()
            kept = torch.where(finite, piece, 0).double()
            square += float(kept.square().sum())
            count += int(finite.sum())
            most = max(most, float(kept.abs().max()))
            whole = whole and bool((kept == kept.round()).all())
        limit = torch.finfo(dtype).max if dtype.is_floating_point else math.inf
        self.plain = count == values.numel() and most < limit
        self.rms, self.norm = math.sqrt(square / max(count, 1)), math.sqrt(square)
        told = whole and 0 < most * torch.finfo(dtype).eps <= 0.5
        self.apart = _UNDER_HALF / (most + self.rms) if told else math.inf


def compare(out: torch.Tensor, expected: Expected, bound: Bound, full: bool = True) -> Errors:
    """An output against what is expected of it; shape and dtype are known to be right.

    Not `full`: the figures are filled only when it is wrong.
    """
    if expected.values.numel() == 0 or (not full and not refused(out, expected, bound)):
        return Errors()
    totals, start = _Totals(expected, bound), 0
    for piece, right in zip(_pieces(out.reshape(-1)), _pieces(expected.values.reshape(-1))):
        totals.add(piece.double(), right.double(), start)
        start += piece.numel()
    return totals.errors()


def refused(out: torch.Tensor, expected: Expected, bound: Bound) -> bool:
    """Whether `compare` finds a reason, as soon as it is known."""
    if bound.norm == math.inf and expected.plain:
        return not _within(out.reshape(-1), expected, bound.element)
    return bool(compare(out, expected, bound).reason)


def worst(found: Sequence[Errors]) -> Errors:
    """Of several outputs: the first wrong one decides, else the largest figures."""
    wrong = next((one for one in found if one.reason), None)
    figures = [field.name for field in fields(Errors) if field.name != "reason"]
    return wrong or Errors(**{name: max(getattr(one, name) for one in found) for name in figures})


def kind_fault(out: object, shape: Sequence[int], dtype: torch.dtype, device: str) -> str:
    """Why a variant's output is no plain tensor of the right kind; empty when it is one."""
    if type(out) is not torch.Tensor:
        return f"returned {type(out).__name__}, not a tensor"
    if out.__dict__:
        return f"returned a tensor with attributes of its own ({', '.join(out.__dict__)})"
    if tuple(out.shape) != tuple(shape):
        return f"returned shape {tuple(out.shape)}, not {tuple(shape)}"
    if out.dtype != dtype:
        return f"returned {_name(out.dtype)}, not {_name(dtype)}"
    if out.device != torch.device(device):
        return f"returned a tensor on {out.device}, not on {device}"
    if out.layout is not torch.strided:
        return f"returned layout {out.layout}, not torch.strided"
    if any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.stride())):
        return "returned a tensor whose elements share memory (a stride of 0)"
    return "returned a lazily negated tensor" if out.is_neg() else ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _pieces(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    return iter(flat.split(_CHUNKS[flat.device.type])) if flat.numel() else iter(())


def _within(out: torch.Tensor, expected: Expected, limit: float) -> bool:
    """The elementwise rule for finite values, in as few passes as there are: NaN compares false."""
    beside = expected.rms + (_smallest(expected.dtype) / limit if limit else 0.0)
    for piece, right in zip(_pieces(out), _pieces(expected.values.reshape(-1))):
        right = right.double()  # integers come as they are
        error = piece.double().sub_(right).abs_()
        if not bool((error <= right.abs().add_(beside).mul_(limit)).all()):
            return False
    return True


def _smallest(dtype: torch.dtype) -> float:
    """The smallest number above 0, subnormal; 0 for integers."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


class _Totals:
    """Running maxima and what breaks the rule, over the pieces of one output."""

    def __init__(self, expected: Expected, bound: Bound) -> None:
        self.expected, self.dtype, self.bound = expected, expected.dtype, bound
        self.abs = self.rel = self.ulp = self.square = self.counted = self.scaled = 0.0
        self.bad = self.strange = 0  # elements beyond the bound; elements that differ in being finite
        self.worst = self.first = ""

    def add(self, out: torch.Tensor, right: torch.Tensor, start: int) -> None:
        """Take in one piece, float64 both."""
        rounded = right.to(self.dtype).double()
        self._map(out, right, rounded, start)
        finite = rounded.isfinite() & out.isfinite()
        error = torch.where(finite, (out - right).abs(), 0.0)
        size = torch.where(finite, right.abs(), 0.0)
        self.abs = max(self.abs, float(error.max()))
        self.rel = max(self.rel, float(torch.where(size > 0, error / size, 0.0).max()))
        self.ulp = max(self.ulp, float((error / _ulp(size, self.dtype)).max()))
        self.square += float(error.square().sum())
        error = (error - _smallest(self.dtype)).clamp_min_(0.0)
        self.counted += float(error.square().sum())
        self._bound(torch.where(error > 0, error / (size + self.expected.rms), 0.0), out, right, start)

    def _map(self, out: torch.Tensor, right: torch.Tensor, rounded: torch.Tensor, start: int) -> None:
        infinite = torch.where(rounded.isinf(), out == rounded, out.isfinite())
        differs = ~torch.where(rounded.isnan(), out.isnan(), infinite)
        if self.dtype.is_floating_point:
            differs &= ~self._at_the_edge(out, right)
        if not bool(differs.any()):
            return
        if not self.first:
            at = int(differs.nonzero()[0])
            self.first = f"{self._index(start + at)}: {out[at]:.6g}, not {rounded[at]:.6g}"
        self.strange += int(differs.sum())

    def _at_the_edge(self, out: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Within the bound of the dtype's largest number an output may overflow or not."""
        largest, limit = torch.finfo(self.dtype).max, min(self.bound.element, 0.1)
        near = (
            right.isfinite() & (right.abs() >= (1 - limit) * largest) & (right.abs() <= (1 + limit) * largest)
        )
        return near & (out.abs() >= (1 - 2 * limit) * largest) & (out.sign() == right.sign())

    def _bound(self, scaled: torch.Tensor, out: torch.Tensor, right: torch.Tensor, start: int) -> None:
        worst = float(scaled.max())
        if worst > max(self.scaled, self.bound.element):
            at = int(scaled.argmax())
            self.worst = f"{self._index(start + at)}: {out[at]:.9g}, not {right[at]:.9g}"
        self.scaled = max(self.scaled, worst)
        self.bad += int((scaled > self.bound.element).sum())

    def _index(self, flat: int) -> str:
        """An element's place, as `[row, col]`."""
        place = []
        for size in reversed(self.expected.values.shape):
            flat, here = divmod(flat, size)
            place.append(here)
        return str(place[::-1])

    def errors(self) -> Errors:
        relative, reason = self._over_norm(self.square), self._reason(self._over_norm(self.counted))
        return Errors(self.abs, self.rel, relative, self.ulp, self.scaled, reason)

    def _over_norm(self, square: float) -> float:
        return math.sqrt(square) / self.expected.norm if self.expected.norm else math.inf if square else 0.0

    def _reason(self, relative: float) -> str:
        if self.strange:
            return f"{self.strange} elements differ in being finite, the first at {self.first}"
        if self.bad:
            share = 100.0 * self.bad / self.expected.values.numel()
            return f"{self.bad} elements ({share:.3g} %) beyond {self.bound.words}; the worst at {self.worst}"
        if relative > self.bound.norm:
            limit = f"{self.bound.norm_words}, {self.bound.norm:.1e}"
            return f"norm-relative error {relative:.2e} is over {limit}"
        return ""


def _ulp(size: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of `dtype` at `size`; 1 for integers."""
    if not dtype.is_floating_point:
        return torch.ones_like(size)
    info = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp_min(info.tiny)).exponent - 1
    return torch.ldexp(torch.full_like(size, info.eps), exponent)
