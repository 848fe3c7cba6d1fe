"""How an own operator gets the gradient that another operator computes."""

from __future__ import annotations

import torch

from kernels.guards import refuse_second_derivative


def register_gradient(differentiable, backward, *, of_output: bool) -> None:
    """Give `differentiable(x, *how)` the gradient `backward(grad, kept, *how)`, which has none itself.

    What is kept for it is x, or the output where the gradient is a function `of_output`.
    """

    def keep(ctx, inputs, output):
        x, *ctx.how = inputs
        ctx.save_for_backward(output if of_output else x)

    def first(ctx, grad):
        (kept,) = ctx.saved_tensors
        return backward(grad, kept, *ctx.how), *(None for _ in ctx.how)

    torch.library.register_autograd(differentiable, first, setup_context=keep)
    refuse_second_derivative(backward)
