"""What the project's own kernels refuse, in one sentence each."""

from __future__ import annotations

import torch

UP_TO_FLOAT32 = (torch.float32, torch.bfloat16, torch.float16)
FLOATING = (*UP_TO_FLOAT32, torch.float64)


def takes(name: str, *tensors: torch.Tensor, dtypes: tuple[torch.dtype, ...] = FLOATING) -> None:
    """Raise NotImplementedError for a dtype without a kernel."""
    for tensor in tensors:
        if tensor.dtype not in dtypes:
            known = ", ".join(_short(dtype) for dtype in dtypes)
            raise NotImplementedError(f"{name} takes {known}, not {_short(tensor.dtype)}.")


def forward_only(name: str, *tensors: torch.Tensor, dtypes: tuple[torch.dtype, ...] = FLOATING) -> None:
    """Raise NotImplementedError for a dtype without a kernel, or where autograd would record the call."""
    takes(name, *tensors, dtypes=dtypes)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise NotImplementedError(f"{name} has no backward kernel: call it under torch.no_grad().")


def refuse_second_derivative(backward) -> None:
    """Make the gradient of the operator `backward` a NotImplementedError instead of a wrong zero."""

    def second(ctx, grad):
        raise NotImplementedError(f"{backward} can be differentiated once, not twice.")

    torch.library.register_autograd(backward, second)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
