"""Broadcasting for the own kernels in Triton: what is left is three views of one shape."""

from __future__ import annotations

import torch

MAX_RANK = 4
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32)


def prepare(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """out and the views (a, b, out) to run over: one shape, rank 1 to 4, the last contiguous.

    out has torch.add's shape and strides; broadcast dims have stride 0 in the views. Raises RuntimeError for
    shapes that do not broadcast, or that leave more dims.
    """
    shape = torch.broadcast_shapes(a.shape, b.shape)
    out = allocate(a, b, shape, dtype, a.device)
    a, b = a.expand(shape), b.expand(shape)
    sizes, strides = merge(shape, (a.stride(), b.stride(), out.stride()))
    if len(sizes) > MAX_RANK:
        raise RuntimeError(f"add takes {MAX_RANK} dims that do not merge.")
    return out, *(t.as_strided(sizes, s) for t, s in zip((a, b, out), strides, strict=True))


def allocate(a: torch.Tensor, b: torch.Tensor, shape: torch.Size, dtype: torch.dtype, device) -> torch.Tensor:
    """Dense, in the memory order of the first operand that has the whole shape; else contiguous."""
    for t in (a, b):
        if t.shape == shape:
            return torch.empty_like(t, dtype=dtype, device=device)
    return torch.empty(shape, dtype=dtype, device=device)


def merge(shape, strides):
    """Sizes and strides, in out's memory order, with the dims that every operand walks as one made one.

    shape: (rank,); strides: of a, b, out, each (rank,). Dims of size 1 go.
    """
    dims = []
    for d in (d for d in range(len(shape)) if shape[d] != 1):  # torch.compile cannot trace a sort by strides
        dims.insert(len([e for e in dims if strides[-1][e] >= strides[-1][d]]), d)
    merged = []  # [size, (stride of a, b, out)]
    for d in dims:
        size, step = shape[d], tuple(s[d] for s in strides)
        if merged and all(outer == inner * size for outer, inner in zip(merged[-1][1], step, strict=True)):
            merged[-1] = (merged[-1][0] * size, step)
        else:
            merged.append((size, step))
    merged = merged or [(1, (1, 1, 1))]
    return [m[0] for m in merged], list(zip(*(m[1] for m in merged), strict=True))
