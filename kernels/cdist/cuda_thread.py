"""Distances in CUDA C++: one thread for each output (`csrc/cdist/thread.cu`, loaded before this)."""

from __future__ import annotations

import torch

from kernels.cdist.points import over_batches
from kernels.guards import forward_only


@torch.library.register_fake("kernels::cdist_thread")
def _(x1: torch.Tensor, x2: torch.Tensor, p: float) -> torch.Tensor:
    return x1.new_empty(x1.shape[0], x1.shape[1], x2.shape[1])


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] on a CUDA device, in the inputs' dtype, for any p >= 0.

    Floating dtypes; half types are accumulated in float32. Batch dims broadcast; expanded or
    non-contiguous inputs are copied first, as part of the call. Raises NotImplementedError for
    another dtype, or where autograd would record the call.
    """
    forward_only("cuda_thread", x1, x2)
    if p < 0:
        raise ValueError(f"p must not be negative, not {p}.")
    return over_batches(lambda a, b: torch.ops.kernels.cdist_thread(a, b, float(p)), x1, x2)
