"""Fakes and gradients of the exact forms' operators (their library is loaded before this)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernels.guards import refuse_second_derivative

_PRODUCT_ABOVE = 16  # coordinates; up to there the gradient is bound by reading, and differences are free


def fake(x1: torch.Tensor, x2: torch.Tensor, p: float, *options: bool) -> torch.Tensor:
    """[o, i, n, d], [o, i, m, d] -> [o, i, n, m], batch dims of 1 standing for any size."""
    batch = torch.broadcast_shapes(x1.shape[:2], x2.shape[:2])
    return x1.new_empty(*batch, x1.shape[2], x2.shape[2])


def register(name: str) -> None:
    """Give `kernels::<name>(x1, x2, p, ...)`, which exists already, its fake and its gradient."""
    forward = getattr(torch.ops.kernels, name)

    def keep(ctx, inputs, output):
        x1, x2, ctx.p, *ctx.options = inputs
        ctx.save_for_backward(x1, x2, *[output] * (x1.dtype == torch.float32))

    def backward(ctx, grad):
        x1, x2, *saved = ctx.saved_tensors
        grads = gradients(grad, x1, x2, ctx.p, saved, forward, ctx.options, ctx.needs_input_grad)
        return (*grads, None, *[None] * len(ctx.options))

    torch.library.register_fake(f"kernels::{name}", fake)
    torch.library.register_autograd(f"kernels::{name}", backward, setup_context=keep)


def gradients(
    grad: torch.Tensor,
    x1: torch.Tensor,
    x2: torch.Tensor,
    p: float,
    saved: Sequence[torch.Tensor],
    forward: Callable[..., torch.Tensor],
    options: Sequence[bool],
    needed: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Of x1 [o, i, n, d] and x2 [o, i, m, d] in their dtype, where `needed`; a batch dim of 1 stands for any.

    `saved` holds the distances if they are float32: rounded to a half type they are right as values, but not
    to divide by or compare with, and are computed again by `forward(x1, x2, p, *options)`.
    """
    wide1, wide2 = x1.float(), x2.float()
    distance = saved[0] if saved else forward(wide1, wide2, p, *options)
    pairs = grad.contiguous(), distance, p
    first = _gradient(*pairs, wide1, wide2, True).to(x1.dtype) if needed[0] else None
    second = _gradient(*pairs, wide2, wide1, False).to(x2.dtype) if needed[1] else None
    return first, second


def _gradient(
    grad: torch.Tensor,
    distance: torch.Tensor,
    p: float,
    own: torch.Tensor,
    other: torch.Tensor,
    own_is_rows: bool,
) -> torch.Tensor:
    """Of `own` [o, i, points, d], in float32; `grad` and `distance` are [o, i, n, m]."""
    if p == 0 or grad.numel() == 0:
        return torch.zeros_like(own)
    o, i, n, m = grad.shape
    full = torch.ops.kernels.cdist_backward(
        grad.view(o * i, n, m),
        _whole(own, o, i),
        _whole(other, o, i),
        distance.view(o * i, n, m),
        p,
        own_is_rows,
        p == 2 and own.shape[3] > _PRODUCT_ABOVE,
    )
    return full.view(o, i, *own.shape[2:]).sum_to_size(own.shape)


def _whole(x: torch.Tensor, o: int, i: int) -> torch.Tensor:
    return x.expand(o, i, -1, -1).reshape(o * i, *x.shape[2:]).contiguous()


def _register_backward() -> None:
    torch.library.register_fake(
        "kernels::cdist_backward",
        lambda grad, own, other, distance, p, own_is_rows, product: torch.empty_like(own),
    )
    refuse_second_derivative("kernels::cdist_backward")


register("cdist_small")
register("cdist_register")
_register_backward()
