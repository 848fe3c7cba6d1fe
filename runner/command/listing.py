"""`mode=list`: ops and variants, and why they are there."""

from __future__ import annotations

from collections.abc import Iterable

from runner.command.usage import show
from runner.model import Op, Variant
from runner.report.cells import plain


def describe(ops: Iterable[tuple[str, Op | None, list[str]]]) -> None:
    """Prints every op."""
    show(of_all(ops))


def of_all(ops: Iterable[tuple[str, Op | None, list[str]]]) -> str:
    """Every op; one that cannot be used says why."""
    blocks = [
        of_op(op) if op else "\n  ".join([f"{name}: cannot be used", *faults]) for name, op, faults in ops
    ]
    return "\n\n".join(blocks)


def of_op(op: Op) -> str:
    """One op in full: what it takes and every variant."""
    lines = [f"{op.name}: {op.why}"]
    for noun, words in _facts(op):
        lines.append(f"  {noun:<10} {', '.join(words)}")
    width = max(map(len, op.variants))
    lines += [_variant(each, width, op) for each in op.variants.values()]
    return "\n".join(lines)


def _facts(op: Op) -> Iterable[tuple[str, Iterable[str]]]:
    yield "dims", op.dims
    if op.attrs:
        yield "attrs", [f"{name}={'|'.join(map(plain, values))}" for name, values in op.attrs.items()]
    yield "dtypes", op.dtypes
    yield "shapes", [f"{name} ({len(shapes)})" for name, shapes in op.shapes.items()]
    yield "direction", [way for way in op.cost if way == "forward" or op.grad]
    yield "variants", [str(len(op.variants))]


def _variant(variant: Variant, width: int, op: Op) -> str:
    marks = [variant.language if variant.compile is None else "torch.compile"]
    marks += [variant.group] if variant.group else []
    marks += ["baseline"] if variant.name == op.baseline else []
    text = f"    {variant.name:<{width}}  {variant.why or variant.target.text} ({', '.join(marks)})"
    return text + (f"; accepts {variant.accepts}" if variant.accepts else "")
