"""What the own GeLU ops share: shape rule, gradient, and what they refuse."""

from __future__ import annotations

import torch

FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def is_tanh(x: torch.Tensor, approximate: str, variant: str) -> bool:
    """Whether `approximate` names the tanh form.

    Raises NotImplementedError for a dtype the kernels lack, ValueError for an unknown form.
    """
    if x.dtype not in FLOATING:
        known = ", ".join(map(str, FLOATING))
        raise NotImplementedError(f"gelu.{variant} has no kernel for {x.dtype}: it takes {known}.")
    if approximate not in ("tanh", "none"):
        raise ValueError(f"approximate is 'tanh' or 'none', not {approximate!r}.")
    return approximate == "tanh"


def register(name: str) -> None:
    """Give `kernels::<name>(x, tanh, *how)` its fakes and its gradient.

    The gradient is `kernels::<name>_backward(grad, x, tanh, *how)`; both ops must exist already. `how` is
    what an op takes besides: parameters of its launch, the same for both directions.
    """
    forward, backward = f"kernels::{name}", f"kernels::{name}_backward"
    gradient = getattr(torch.ops.kernels, f"{name}_backward")

    def keep(ctx, inputs, output):
        x, *ctx.how = inputs
        ctx.save_for_backward(x)

    def first(ctx, grad):
        (x,) = ctx.saved_tensors
        return gradient(grad, x, *ctx.how), *(None for _ in ctx.how)

    def second(ctx, grad):
        raise NotImplementedError(f"{backward} can be differentiated once, not twice.")

    torch.library.register_fake(forward, lambda x, *how: torch.empty_like(x))
    torch.library.register_fake(backward, lambda grad, x, *how: torch.empty_like(x))
    torch.library.register_autograd(forward, first, setup_context=keep)
    torch.library.register_autograd(backward, second)
