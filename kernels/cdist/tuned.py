"""The exact distances by the design that is fastest for the size, all from the library of `exact_bindings.cpp`."""

from __future__ import annotations

import functools

import torch

from kernels.cdist import cuda_register, cuda_small
from kernels.cdist.points import check_points
from kernels.guards import UP_TO_FLOAT32, takes

# d at most, blocks of 128 x 128 outputs for each multiprocessor at least -> design. The first row that holds.
DESIGNS = (
    (8, 0, cuda_small.cdist),
    (None, 2, functools.partial(cuda_register.cdist, tile=128)),
    (None, 0, functools.partial(cuda_register.cdist, tile=64)),
)


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """[.., n, d], [.., m, d] -> [.., n, m] on a CUDA device, in the inputs' dtype, for any p >= 0.

    Every distance comes from differences, in float32, whatever the design. float32, bfloat16 and float16;
    differentiable once. Batch dims broadcast without copies; a non-contiguous input is copied first, as part
    of the call. Raises NotImplementedError for another dtype.
    """
    takes("tuned", x1, x2, dtypes=UP_TO_FLOAT32)
    check_points(x1, x2)
    return design(x1, x2)(x1, x2, p)


def design(x1: torch.Tensor, x2: torch.Tensor):
    """The row of `DESIGNS` for these inputs."""
    d = x1.shape[-1]
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]).numel()
    blocks = batch * -(-x1.shape[-2] // 128) * -(-x2.shape[-2] // 128) / _processors(x1.device)
    return next(do for most, least, do in DESIGNS if (most is None or d <= most) and blocks >= least)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
