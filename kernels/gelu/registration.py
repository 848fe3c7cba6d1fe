"""What the own GeLU ops share: shape rule, gradient, and what they refuse.

An own GeLU is three ops: `kernels::<name>(x, tanh, *how)`, which autograd knows, `kernels::<name>_forward`,
the same without a gradient (autograd's Python costs more than a launch), and
`kernels::<name>_backward(grad, x, tanh, *how)`. `how` is what an op takes besides: parameters of its launch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels.gradients import register_gradient
from kernels.guards import FLOATING


def gelu_by(name: str, variant: str) -> Callable[..., torch.Tensor]:
    """`gelu(x, approximate, *how)` by the three ops of `name`, which exist already; registers the rest.

    x: any shape and strides, floating; the result follows x's dense strides, as torch's does. Raises
    NotImplementedError for a dtype the kernels lack, ValueError for an unknown form.
    """
    ops = torch.ops.kernels
    differentiable, forward, backward = (
        getattr(ops, name + end).default for end in ("", "_forward", "_backward")
    )
    for op in (differentiable, forward):
        torch.library.register_fake(op, lambda x, *how: torch.empty_like(x))
    torch.library.register_fake(backward, lambda grad, x, *how: torch.empty_like(x))
    register_gradient(differentiable, backward, of_output=False)

    # A small call waits for this code: it asks as little as it can.
    def gelu(x: torch.Tensor, approximate: str = "none", *how) -> torch.Tensor:
        tanh = approximate == "tanh"
        if x.dtype not in FLOATING or not (tanh or approximate == "none"):
            _refuse(x, approximate, variant)
        if x.requires_grad and torch.is_grad_enabled():
            return differentiable(x, tanh, *how)
        return forward(x, tanh, *how)

    return gelu


def _refuse(x: torch.Tensor, approximate: str, variant: str) -> None:
    if x.dtype not in FLOATING:
        known = ", ".join(map(str, FLOATING))
        raise NotImplementedError(f"gelu.{variant} has no kernel for {x.dtype}: it takes {known}.")
    raise ValueError(f"approximate is 'tanh' or 'none', not {approximate!r}.")
