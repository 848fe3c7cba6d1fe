"""Element types by name: sizes, and torch's promotion rule without torch."""

from __future__ import annotations

_SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip

NAMES = tuple(_SIZES)
_INTS = ("int8", "int16", "int32", "int64")  # by width; uint8 meets them one step up


def itemsize(dtype: str) -> int:
    """Bytes per element."""
    return _SIZES[dtype]


def per_input(entry: str, count: int) -> list[str]:
    """A case's dtype, `float32` or `bfloat16+float32`, as one for each of `count` inputs."""
    parts = entry.split("+")
    return parts * count if len(parts) == 1 else parts


def is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _category(dtype: str) -> int:
    return 0 if dtype == "bool" else 2 if is_floating(dtype) else 1


def _widen(a: str, b: str) -> str:
    """The common type of two tensors' dtypes (the table of `torch.promote_types`)."""
    if a == b:
        return a
    if _category(a) != _category(b):
        return max(a, b, key=_category)
    if is_floating(a):
        wider = max(a, b, key=itemsize)
        return wider if itemsize(a) != itemsize(b) else "float32"
    if "uint8" in (a, b):
        other = b if a == "uint8" else a
        return "int16" if other == "int8" else other
    return max(a, b, key=_INTS.index)


def promote(operands: list[tuple[str, int]]) -> str:
    """The result type of `(dtype, ndim)` operands.

    Operands with dimensions decide before 0-dim ones of the same or a lower category, as
    `torch.result_type` documents it.
    """
    result = ""
    for wanted in (True, False):  # with dimensions first, then 0-dim
        group = ""
        for dtype, ndim in operands:
            if (ndim > 0) is wanted:
                group = _widen(group, dtype) if group else dtype
        if not result or (group and _category(group) > _category(result)):
            result = group
    return result
