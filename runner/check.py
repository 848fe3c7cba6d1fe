"""Is it right? A variant's output against the op's definition in float64, on the same inputs.

The rule (METHODOLOGY.md, "The check"): with r the reference, o the output and rms the root mean
square of the finite r, an elementwise form needs |o - r| <= tolerance * (|r| + rms) everywhere; a
normwise form needs ||o - r|| <= tolerance * ||r||. NaN and infinities must stand where the
reference, rounded to the output's dtype, has them.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

# In units of the dtype's eps. 16-bit: a chain of rounded steps (the naive forms) is allowed, an
# error of a whole wrong term is not. float32: far below TF32's or bfloat16's 2**-11 and 2**-8.
_EPS_UNITS = {torch.float64: 64, torch.float32: 32, torch.bfloat16: 4, torch.float16: 4}
_MOST_POISONED = 64  # blocks of one size: small ones share a segment that is never used up
_M_PERTURB = -6  # malloc.h
_SMALL_BLOCK = 2048  # bytes; glibc's per-thread lists end at 1032
_CHUNK = 1 << 25  # elements compared at once: bounds the check's own memory to about 1 GiB


@dataclass(frozen=True)
class Errors:
    """How far an output is from the reference; `reason` is empty when it is within the rule."""

    max_abs_err: float = 0.0
    max_rel_err: float = 0.0
    norm_rel_err: float = 0.0
    max_ulp: float = 0.0
    reason: str = ""


def tolerance(dtype: torch.dtype) -> float:
    """The relative tolerance of a dtype; 0 for integers, which must be exact."""
    return _EPS_UNITS[dtype] * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


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
    if not grad:
        with torch.no_grad():
            return [definition(*wide, **arguments)], None
    # detach: .double() of a float64 tensor is the tensor itself
    leaves = [x.detach().requires_grad_(i in grad) for i, x in enumerate(wide)]
    with torch.enable_grad():
        out = definition(*leaves, **arguments)
    given = upstream(out)
    return list(torch.autograd.grad(out, [leaves[i] for i in grad], given.double())), given


def compare(out: object, expected: torch.Tensor, dtype: torch.dtype, device: str, accuracy: str) -> Errors:
    """An output against its reference. Anything but a plain tensor of the right kind is refused first."""
    wrong = _wrong_kind(out, expected, dtype, device)
    if wrong:
        return Errors(math.nan, math.nan, math.nan, math.nan, wrong)
    if expected.numel() == 0:
        return Errors()
    return _compare_values(
        torch.Tensor.detach(out).reshape(-1), expected.reshape(-1), dtype, accuracy, expected.shape
    )


def _wrong_kind(out: object, expected: torch.Tensor, dtype: torch.dtype, device: str) -> str:
    if type(out) is not torch.Tensor:
        return f"returned {type(out).__name__}, not a tensor"
    if out.__dict__:
        return f"returned a tensor with attributes of its own ({', '.join(out.__dict__)})"
    if out.shape != expected.shape:
        return f"returned shape {tuple(out.shape)}, not {tuple(expected.shape)}"
    if out.dtype != dtype:
        return f"returned {_name(out.dtype)}, not {_name(dtype)}"
    if out.device != torch.device(device):
        return f"returned a tensor on {out.device}, not on {device}"
    if out.layout is not torch.strided:
        return f"returned layout {out.layout}, not torch.strided"
    return ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _compare_values(out: torch.Tensor, expected: torch.Tensor, dtype, accuracy: str, shape) -> Errors:
    rms, norm = _scale(expected)
    totals = _Totals(shape)
    for start in range(0, out.numel(), _CHUNK):
        piece = slice(start, start + _CHUNK)
        reason = totals.add(out[piece].double(), expected[piece].double(), dtype, rms, start, accuracy)
        if reason:
            return totals.errors(norm, reason)
    error = totals.errors(norm, "")
    if accuracy == "normwise" and not error.norm_rel_err <= tolerance(dtype):
        reason = (
            f"norm-relative error {error.norm_rel_err:.2e} is over {tolerance(dtype):.1e} ({_name(dtype)})"
        )
        return totals.errors(norm, reason)
    return error


def _scale(expected: torch.Tensor) -> tuple[float, float]:
    """Root mean square and norm of the finite reference values."""
    square, count = 0.0, 0
    for piece in expected.split(_CHUNK):
        finite = piece[piece.isfinite()].double()
        square += float(finite.square().sum())
        count += finite.numel()
    return math.sqrt(square / max(count, 1)), math.sqrt(square)


class _Totals:
    """Running maxima over the pieces of one output."""

    def __init__(self, shape: torch.Size) -> None:
        self.shape = shape
        self.abs = self.rel = self.ulp = self.square = 0.0

    def add(self, out, expected, dtype, rms: float, start: int, accuracy: str) -> str:
        """Take in one piece; the reason when it breaks the elementwise rule or its maps differ."""
        rounded = expected.to(dtype).double()
        reason = _map_difference(out, rounded, start, self.shape)
        finite = rounded.isfinite() & out.isfinite()
        error = torch.where(finite, (out - expected).abs(), 0.0)
        size = torch.where(finite, expected.abs(), 0.0)
        self.abs = max(self.abs, float(error.max()))
        self.rel = max(self.rel, float(torch.where(size > 0, error / size, 0.0).max()))
        self.ulp = max(self.ulp, float((error / _ulp(size, dtype)).max()))
        self.square += float(error.square().sum())
        if reason or accuracy == "normwise":
            return reason
        return _over_bound(error, size, tolerance(dtype), rms, out, expected, dtype, start, self.shape)

    def errors(self, norm: float, reason: str) -> Errors:
        relative = math.sqrt(self.square) / norm if norm else (0.0 if self.square == 0 else math.inf)
        return Errors(self.abs, self.rel, relative, self.ulp, reason)


def _ulp(size: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of `dtype` at `size`; 1 for integers."""
    if not dtype.is_floating_point:
        return torch.ones_like(size)
    info = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp_min(info.tiny)).exponent - 1
    return torch.ldexp(torch.full_like(size, info.eps), exponent)


def _index(flat: int, shape: torch.Size) -> str:
    """An element's place, as `[row, col]`."""
    place = []
    for size in reversed(shape):
        flat, here = divmod(flat, size)
        place.append(here)
    return str(place[::-1])


def _map_difference(out: torch.Tensor, rounded: torch.Tensor, start: int, shape: torch.Size) -> str:
    same = torch.where(
        rounded.isnan(), out.isnan(), torch.where(rounded.isinf(), out == rounded, out.isfinite())
    )
    if bool(same.all()):
        return ""
    at = int((~same).nonzero()[0])
    count = int((~same).sum())
    what = f"{out[at]:.6g}, not {rounded[at]:.6g}"
    return f"{count} elements differ in being finite, the first at {_index(start + at, shape)}: {what}"


def _over_bound(error, size, relative: float, rms: float, out, expected, dtype, start: int, shape) -> str:
    bad = error > relative * (size + rms)
    if not bool(bad.any()):
        return ""
    at = int((error - relative * (size + rms)).argmax())
    share = 100.0 * float(bad.double().mean())
    return (
        f"{int(bad.sum())} elements ({share:.3g} %) beyond the {_name(dtype)} bound; the worst at "
        f"{_index(start + at, shape)}: {out[at]:.9g}, not {expected[at]:.9g}"
    )


@contextlib.contextmanager
def poisoned(size_bytes: Sequence[int], device: str) -> Iterator[None]:
    """Around a call: memory that it allocates and does not write holds no right value.

    On a GPU the allocator's free blocks that would serve these sizes are filled with NaN. On the
    CPU glibc fills what it hands out and takes back (`mallopt`, M_PERTURB); elsewhere it is left.
    """
    if device != "cpu":
        _fill_free_blocks(size_bytes, device)
        yield
        return
    perturb = getattr(ctypes.CDLL(None), "mallopt", None) or (lambda parameter, value: 0)
    small = [size for size in size_bytes if size <= _SMALL_BLOCK]
    _fill(small, 16)  # these wait in a list of their own, which is handed out as it is
    perturb(_M_PERTURB, 1)  # new memory reads 0xFE: -1.7e38 in float32 and bfloat16, NaN in float16
    try:
        yield
    finally:
        perturb(_M_PERTURB, 0)


def _fill(size_bytes: Sequence[int], count: int) -> None:
    """Write `count` blocks of each size on the CPU and give them back."""
    for size in size_bytes:
        held = [torch.full((max(size, 1),), 0xFF, dtype=torch.uint8) for _ in range(count)]
        del held


def _fill_free_blocks(size_bytes: Sequence[int], device: str) -> None:
    """A block is free for a size while allocating it does not make the allocator ask for more."""
    held: list[torch.Tensor] = []
    for size in size_bytes:
        for _ in range(_MOST_POISONED):
            before = torch.cuda.memory_reserved(device)
            held.append(torch.full((max(size, 1),), 0xFF, dtype=torch.uint8, device=device))
            if torch.cuda.memory_reserved(device) > before:
                break


def snapshot(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies to compare with after a call."""
    return [x.detach().clone() for x in tensors]


def changed(tensors: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> list[int]:
    """Positions of the tensors that are no longer what `snapshot` saw (NaN equals NaN)."""
    return [i for i, (x, y) in enumerate(zip(tensors, before)) if not _same(x.detach(), y)]


def _same(x: torch.Tensor, y: torch.Tensor) -> bool:
    return (
        x.shape == y.shape
        and x.dtype == y.dtype
        and bool(torch.eq(x, y).logical_or(x.isnan() & y.isnan()).all())
    )
