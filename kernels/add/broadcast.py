"""Broadcasting and promotion for the own kernels: what is left is three views of one shape."""

from __future__ import annotations

from numbers import Number

import torch

MAX_RANK = 4
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32)


def prepare(a: torch.Tensor | Number, b: torch.Tensor | Number, variant: str) -> tuple[torch.Tensor, ...]:
    """out and the views (a, b, out) to run over: one shape, rank 1 to 4, the last contiguous.

    out has torch.add's shape and dtype; broadcast dims have stride 0 in the views. Raises
    NotImplementedError where the kernels cannot do it.
    """
    dtype = _result_dtype(a, b)
    a, b = _as_tensors(a, b, dtype)
    _refuse(a, b, dtype, variant)
    shape = torch.broadcast_shapes(a.shape, b.shape)
    out = _allocate(a, b, shape, dtype)
    a, b = a.expand(shape), b.expand(shape)
    sizes, strides = _merge(shape, (a.stride(), b.stride(), out.stride()))
    if len(sizes) > MAX_RANK:
        raise NotImplementedError(f"add.{variant} takes {MAX_RANK} dims that do not merge, not {len(sizes)}.")
    return out, *(t.as_strided(sizes, s) for t, s in zip((a, b, out), strides, strict=True))


def _result_dtype(a: torch.Tensor | Number, b: torch.Tensor | Number) -> torch.dtype:
    """torch.result_type; torch.compile cannot trace that, so there a sum that nothing uses tells."""
    return (a + b).dtype if torch.compiler.is_compiling() else torch.result_type(a, b)


def _as_tensors(a, b, dtype):
    """Numbers become 0-dim tensors; a 0-dim operand on the CPU follows the other to its device."""
    device = next(t.device for t in (a, b) if isinstance(t, torch.Tensor))
    a, b = (torch.full((), t, dtype=dtype, device=device) if isinstance(t, Number) else t for t in (a, b))
    if a.device != b.device and a.dim() == 0:
        a = a.to(b.device)
    elif a.device != b.device and b.dim() == 0:
        b = b.to(a.device)
    return a, b


def _refuse(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, variant: str) -> None:
    if a.device != b.device:
        raise ValueError(f"a is on {a.device} and b on {b.device}; move one.")
    for d in (a.dtype, b.dtype, dtype):
        if d not in DTYPES:
            raise NotImplementedError(f"add.{variant} has no kernel for {d}.")
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        raise NotImplementedError(f"add.{variant} has no backward kernel.")


def _allocate(a: torch.Tensor, b: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Dense, in the memory order of the first operand that has the whole shape."""
    for t in (a, b):
        if t.shape == shape:
            return torch.empty_like(t, dtype=dtype)
    return torch.empty(shape, dtype=dtype, device=a.device)


def _merge(shape, strides):
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
