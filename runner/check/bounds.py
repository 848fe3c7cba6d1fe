"""How far from right an output may be: by dtype, by declared unit, by the built-in's own error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

# In units of the dtype's eps. 16-bit: a chain of rounded steps (the naive forms) is allowed, an
# error of a whole wrong term is not. float32: far below TF32's or bfloat16's 2**-11 and 2**-8.
_EPS_UNITS = {torch.float64: 64, torch.float32: 32, torch.bfloat16: 4, torch.float16: 4}
# The same for a norm, where rounding averages out and cancellation does not.
_NORM_UNITS = _EPS_UNITS | {torch.bfloat16: 1, torch.float16: 1}
# Of the built-in's own error, of norms: the largest error among a thousand elements is a matter of chance.
# A naive chain of bfloat16 operations is 2.8 times as far off as a fused kernel.
FACTOR = 4.0
# Nobody is refused below this, in eps: a built-in that is right to the last place would refuse every other
# order of summation.
_FLOOR_UNITS = {torch.float64: 8, torch.float32: 8, torch.bfloat16: 2, torch.float16: 2}
_UNIT_EPS = {"tf32": 2.0**-10, "bf16": 2.0**-7}  # of arithmetic that is coarser than float32


@dataclass(frozen=True)
class Bound:
    """`element` bounds |o - r| / (|r| + rms) of every element, `norm` bounds ||o - r|| / ||r||.

    `words` and `norm_words` say what is broken by who breaks either.
    """

    element: float
    norm: float = math.inf
    words: str = ""
    norm_words: str = ""


def tolerance(dtype: torch.dtype, unit: str = "fp32") -> float:
    """The relative tolerance of a dtype; 0 for integers, which must be exact.

    float32 that a variant declares to compute in a coarser `unit` is held to four of that unit's eps.
    """
    own = _EPS_UNITS[dtype] * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    return max(own, 4 * _UNIT_EPS.get(unit, 0.0)) if dtype is torch.float32 else own


def bound(
    dtype: torch.dtype,
    accuracy: str = "elementwise",
    unit: str = "fp32",
    builtin: float | None = None,
    apart: float = math.inf,
) -> Bound:
    """The rule for one output. `builtin` is ||o - r|| / ||r|| of the built-in's own.

    `apart` is `Expected.apart`, for elements.
    """
    name, own = str(dtype).removeprefix("torch."), tolerance(dtype, unit)
    coarse = dtype is torch.float32 and unit in _UNIT_EPS
    words = f"the {unit if coarse else name} bound"
    if accuracy == "normwise":
        norm = own if coarse or not own else _NORM_UNITS[dtype] * torch.finfo(dtype).eps
        # Squares that hold to t have roots that hold to sqrt(t).
        return Bound(math.sqrt(norm), norm, words, words)
    element, words = min((own, words), (apart, "half of what whole numbers lie apart"))
    if builtin is None or coarse or not own:
        return Bound(element, words=words)
    allowed = max(FACTOR * builtin, _FLOOR_UNITS[dtype] * torch.finfo(dtype).eps)
    return Bound(element, allowed, words, f"{FACTOR:g} times the built-in's own error")
