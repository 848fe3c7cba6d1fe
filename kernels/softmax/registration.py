"""What the own softmax ops share: shape rule, gradient, and which of them a call reaches.

An own softmax is three ops along the last dim: `kernels::<name>(x, *how)`, which autograd knows,
`kernels::<name>_forward`, the same without a gradient (autograd's Python costs more than a launch), and
`kernels::<name>_backward(grad, y, *how)`, y being what the forward returned. `how` is what an op takes
besides.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels.gradients import register_gradient


def softmax_by(name: str) -> Callable[..., torch.Tensor]:
    """`rows(x, *how)` by the three ops of `name`, which exist already; registers the rest."""
    ops = torch.ops.kernels
    differentiable, forward, backward = (
        getattr(ops, name + end).default for end in ("", "_forward", "_backward")
    )
    torch.library.register_fake(forward, contiguous)
    return recorded(differentiable, forward, backward)


def recorded(differentiable, forward: Callable, backward) -> Callable[..., torch.Tensor]:
    """`rows(x, *how)`: `differentiable` where autograd records, else `forward`, which it need not know.

    Registers the fakes and the gradient of the two ops. What is kept for the gradient is the output alone.
    """
    torch.library.register_fake(differentiable, contiguous)
    torch.library.register_fake(backward, lambda grad, y, *how: contiguous(y))
    register_gradient(differentiable, backward, of_output=True)

    # A small call waits for this code: it asks as little as it can.
    def rows(x: torch.Tensor, *how) -> torch.Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            return differentiable(x, *how)
        return forward(x, *how)

    return rows


def contiguous(x: torch.Tensor, *how) -> torch.Tensor:
    """The shape rule of all own softmax ops."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)
