"""What the own additions share: promotion, shape rule, gradient, and what they refuse.

An own addition is three ops: `kernels::<name>(a, b, dtype=None, *how)`, which autograd knows,
`kernels::<name>_forward`, the same without a gradient (autograd's Python costs more than a launch), and
`kernels::<name>_sum(grad, outer, reduce, inner, dtype)`, the middle one of three dims summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Number

import torch

from kernels.add.broadcast import DTYPES, MAX_RANK, allocate, merge

_FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def add_by(name: str, variant: str) -> Callable[..., torch.Tensor]:
    """`add(a, b, *how)` by the three ops of `name`, which exist already; registers fakes and the gradient.

    a, b: shapes that broadcast, any strides; shape, dtype and values are torch.add's. Raises
    NotImplementedError where the kernels cannot do it, ValueError for tensors of two devices.
    """
    ops = torch.ops.kernels
    differentiable, forward, total = (getattr(ops, name + end).default for end in ("", "_forward", "_sum"))
    for op in (differentiable, forward):
        torch.library.register_fake(op, _fake_add)
    torch.library.register_fake(total, _fake_sum)
    _register_gradient(differentiable, total)

    def run(a: torch.Tensor, b: torch.Tensor, *how) -> torch.Tensor:
        op = differentiable if (a.requires_grad or b.requires_grad) and torch.is_grad_enabled() else forward
        try:
            return op(a, b, *how)
        except RuntimeError:
            _refuse(a, b, variant)
            raise

    # A small call waits for this code: two tensors that need nothing are asked as little as can be.
    def add(a: torch.Tensor | Number, b: torch.Tensor | Number, *how) -> torch.Tensor:
        if type(a) is type(b) is torch.Tensor and a.dtype is b.dtype in DTYPES and a.is_cuda is b.is_cuda:
            return run(a, b, None, *how) if how else run(a, b)
        return run(*_operands(a, b, variant), *how)

    return add


def _operands(a: torch.Tensor | Number, b: torch.Tensor | Number, variant: str):
    """a and b as tensors of one device, and the dtype of their sum."""
    dtype = _result_dtype(a, b)
    a, b = _as_tensors(a, b, dtype)
    for d in (a.dtype, b.dtype, dtype):
        if d not in DTYPES:
            raise NotImplementedError(f"add.{variant} has no kernel for {d}.")
    return *_together(a, b), dtype


def _refuse(a: torch.Tensor, b: torch.Tensor, variant: str) -> None:
    """Raise where more dims are left than the kernels take."""
    shape = torch.broadcast_shapes(a.shape, b.shape)
    out = allocate(a, b, shape, None, device="meta")
    sizes, _ = merge(shape, (a.expand(shape).stride(), b.expand(shape).stride(), out.stride()))
    if len(sizes) > MAX_RANK:
        raise NotImplementedError(f"add.{variant} takes {MAX_RANK} dims that do not merge, not {len(sizes)}.")


def _result_dtype(a: torch.Tensor | Number, b: torch.Tensor | Number) -> torch.dtype:
    """torch.result_type; torch.compile cannot trace that, so there a sum that nothing uses tells."""
    return (a + b).dtype if torch.compiler.is_compiling() else torch.result_type(a, b)


def _as_tensors(a, b, dtype: torch.dtype):
    device = next(t.device for t in (a, b) if isinstance(t, torch.Tensor))
    return (torch.full((), t, dtype=dtype, device=device) if isinstance(t, Number) else t for t in (a, b))


def _together(a: torch.Tensor, b: torch.Tensor):
    """A 0-dim operand on the CPU follows the other to its device."""
    if a.device == b.device:
        return a, b
    if a.dim() == 0 and a.device.type == "cpu":
        return a.to(b.device), b
    if b.dim() == 0 and b.device.type == "cpu":
        return a, b.to(a.device)
    raise ValueError(f"a is on {a.device} and b on {b.device}; move one.")


def _fake_add(a, b, dtype=None, *how):
    dtype = dtype or a.dtype
    return allocate(a, b, torch.broadcast_shapes(a.shape, b.shape), dtype, a.device)


def _fake_sum(grad, outer, reduce, inner, dtype):
    return grad.new_empty(outer * inner, dtype=dtype)


def _register_gradient(differentiable, total) -> None:
    def keep(ctx, inputs, output):
        a, b, *ctx.how = inputs
        ctx.wanted = [(t.shape, t.dtype) for t in (a, b)]

    def gradient(ctx, grad):
        pairs = zip(ctx.wanted, ctx.needs_input_grad[:2], strict=True)
        both = [sum_to(grad, shape, dtype, total) if needed else None for (shape, dtype), needed in pairs]
        return *both, *(None for _ in ctx.how)

    torch.library.register_autograd(differentiable, gradient, setup_context=keep)

    def keep_sizes(ctx, inputs, output):
        grad, *ctx.sizes, _ = inputs
        ctx.like = grad.shape, grad.dtype

    def spread(ctx, grad):
        (outer, reduce, inner), (shape, dtype) = ctx.sizes, ctx.like
        spread = grad.to(dtype).view(outer, 1, inner).expand(outer, reduce, inner).reshape(shape)
        return spread, None, None, None, None

    torch.library.register_autograd(total, spread, setup_context=keep_sizes)


def sum_to(grad: torch.Tensor, shape: torch.Size, dtype: torch.dtype, total) -> torch.Tensor:
    """grad summed over the dims along which an operand of `shape` was broadcast, in `dtype`.

    Without such dims the gradient is grad itself, converted where the dtype differs: nothing is copied that
    autograd would not copy for torch.add.
    """
    runs = _runs(grad.shape, shape)
    if not any(summed for _, summed in runs):
        return grad.to(dtype).view(shape)
    if grad.numel() == 0 or grad.dtype not in _FLOATING:
        return grad.sum_to_size(shape).to(dtype)
    between = torch.float64 if grad.dtype == torch.float64 else torch.float32
    grad = grad.contiguous()
    while any(summed for _, summed in runs):
        at = next(i for i, (_, summed) in enumerate(runs) if summed)
        outer, reduce, inner = (
            math.prod(n for n, _ in part) for part in (runs[:at], runs[at : at + 1], runs[at + 1 :])
        )
        last = sum(summed for _, summed in runs) == 1
        grad = total(grad, outer, reduce, inner, dtype if last else between)
        del runs[at]
    return grad.view(shape)


def _runs(full: torch.Size, shape: torch.Size) -> list[tuple[int, bool]]:
    """The dims of `full` as (size, summed), neighbours of a kind made one; dims of size 1 go."""
    padded = [1] * (len(full) - len(shape)) + list(shape)
    runs: list[tuple[int, bool]] = []
    for size, own in zip(full, padded, strict=True):
        if size == 1:
            continue
        summed = bool(own == 1)  # traced sizes compare to a symbol
        if runs and runs[-1][1] == summed:
            runs[-1] = (runs[-1][0] * size, summed)
        else:
            runs.append((size, summed))
    return runs
