"""Operations and bytes of operators by their shapes, and the least that an operation must move. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runner.trace.events import Op

PRODUCTS = re.compile(r"::(mm|addmm|bmm|baddbmm|matmul|linear|dot|mv)$|gemm|convolution")
FUSED_ATTENTION = re.compile(r"scaled_dot_product|_(flash|efficient|cudnn)_attention")
_ROWS_SECOND = re.compile(r"::_(flash|efficient)_attention")  # (batch, rows, heads, dim)
_BACKWARD_FLOPS = 2.5  # of fused attention: five products where the forward has two


def least(ops: Sequence[Op], backward: bool, kind: str, first: Op | None) -> tuple[float, float, float]:
    """(bytes read, bytes written, flops) of one call of an operation, if nothing in between went to memory.

    A chain of several operators reads the largest argument of its first and writes what its last one writes;
    its backward also reads what its forward read (`first` is the forward's first operator). Whether two
    arguments are the same tensor cannot be told, so this is a lower bound. Other kinds but attention and
    optimizers move what their operators' shapes say.
    """
    whole = sum(flops(op) for op in ops)
    if kind == "optimizer":
        return (*_optimizer_bytes(ops), whole)
    if kind == "attention":
        return (*_attention_bytes(backward, first), whole)
    if kind != "chain" or len(ops) == 1:
        return sum(op.read_bytes for op in ops), sum(op.written_bytes for op in ops), whole
    read = _largest(ops[0]) + (_largest(first) if backward and first else 0.0)
    return read, ops[-1].written_bytes, whole


def _largest(op: Op) -> float:
    return min(max((float(count * size) for count, size in op.tensors), default=0.0), op.read_bytes)


def _optimizer_bytes(ops: Sequence[Op]) -> tuple[float, float]:
    """Parameters and gradients are read and parameters written; so are Adam's two states."""
    if any("_fused_" in op.name for op in ops):
        return sum(op.read_bytes for op in ops), sum(op.written_bytes for op in ops)
    each = max(sum(count * size for count, size in op.tensors[: op.first]) for op in ops)
    states = 2.0 if any("addcdiv" in op.name for op in ops) else 0.0
    return (2.0 + states) * each, (1.0 + states) * each


def _attention_bytes(backward: bool, first: Op | None) -> tuple[float, float]:
    """Queries, keys and values are of one size here: that of the first operator's first argument."""
    each = first.tensors[0][0] * first.tensors[0][1] if first and first.tensors else 0
    return (5.0 * each, 3.0 * each) if backward else (3.0 * each, 1.0 * each)


def is_product(op: Op) -> bool:
    return bool(PRODUCTS.search(op.name) or FUSED_ATTENTION.search(op.name))


def flops(op: Op) -> float:
    """By shapes: matrix products and fused attention exactly, other operators one an element."""
    shapes = [shape for shape in op.dims if len(shape) >= 2]
    if FUSED_ATTENTION.search(op.name) and len(shapes) >= 2 and len(shapes[0]) == 4:
        rows = shapes[1][1 if _ROWS_SECOND.search(op.name) else -2]
        once = 4.0 * _product(shapes[0]) * rows
        return once * (_BACKWARD_FLOPS if "backward" in op.name else 1.0)
    if PRODUCTS.search(op.name) and len(shapes) >= 2:
        a, b = shapes[-2:]
        return 2.0 * _product(a) * b[-1]
    return float(max((count for count, _ in op.tensors), default=0))


def row_sizes(op: Op) -> list[int]:
    """The sizes that a library's product cuts into tiles: rows, columns and what is summed."""
    shapes = [shape for shape in op.dims if len(shape) >= 2]
    if FUSED_ATTENTION.search(op.name):
        rows = 1 if _ROWS_SECOND.search(op.name) else -2
        return [size for shape in shapes if len(shape) == 4 for size in (shape[rows], shape[-1])]
    return [size for shape in shapes[-2:] for size in shape[-2:]]


def _product(sizes: Iterable[int]) -> float:
    result = 1.0
    for size in sizes:
        result *= size
    return result
