"""Case -> tensors: drawn from the run's seed, or read from the user's file, in the case's layout."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError

import torch

from runner.model import Case, Input, Refusal


def make_inputs(case: Case, seed: int, into: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
    """The case's inputs in declared order, on its device. The same seed gives the same values.

    With `into`, earlier inputs of the case, their memory is used again. Files are read once.
    """
    if not into:
        return [_read(case, spec) if spec.file else _draw(case, spec, seed) for spec in case.inputs]
    for spec, x in zip(case.inputs, into, strict=True):
        if not spec.file:
            _fill(_storage(x, spec), case, spec, seed)
    return list(into)


def upstream_gradient(case: Case, shape: Sequence[int], seed: int) -> torch.Tensor:
    """A gradient for an output of this shape, standard normal in the output's dtype."""
    generator = _generator(case, "upstream gradient", seed)
    values = torch.randn(tuple(shape), generator=generator, device=case.device)
    return values.to(torch_dtype(case.out_dtype))


def grad_positions(case: Case) -> list[int]:
    """Of the inputs whose gradients are asked for; empty in the forward direction."""
    return [i for i, spec in enumerate(case.inputs) if spec.name in case.grad]


def output_dtypes(case: Case) -> list[torch.dtype]:
    """Of each output; gradients have their input's."""
    if case.direction == "forward":
        return [torch_dtype(case.out_dtype)]
    return [torch_dtype(case.inputs[i].dtype) for i in grad_positions(case)]


def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def _generator(case: Case, name: str, seed: int) -> torch.Generator:
    """One stream of numbers per (seed, case, input), so that no input depends on another's size."""
    digest = hashlib.sha256(f"{seed}/{case.case_id}/{name}".encode()).digest()
    return torch.Generator(device=case.device).manual_seed(int.from_bytes(digest[:7], "big"))


def _draw(case: Case, spec: Input, seed: int) -> torch.Tensor:
    storage = _allocate(spec, case.device)
    _fill(storage, case, spec, seed)
    return _view(storage, spec)


def _fill(storage: torch.Tensor, case: Case, spec: Input, seed: int) -> None:
    generator = _generator(case, spec.name, seed)
    _INITS[spec.init](storage, generator)
    if storage.is_floating_point() and spec.scale != 1.0:
        storage.mul_(spec.scale)
    if storage.is_floating_point() and spec.specials:
        _place_specials(storage.view(-1), generator)


def _place_specials(flat: torch.Tensor, generator: torch.Generator) -> None:
    """A few, so that most of a row or of an output stays finite."""
    if flat.numel():
        places = torch.randint(flat.numel(), (len(_SPECIALS),), generator=generator, device=flat.device)
        flat[places] = torch.tensor(_SPECIALS, dtype=flat.dtype, device=flat.device)


def _normal(out: torch.Tensor, generator: torch.Generator) -> None:
    if out.is_floating_point():
        out.normal_(generator=generator)
    else:
        _integers(out, generator)


def _uniform(out: torch.Tensor, generator: torch.Generator) -> None:
    if out.is_floating_point():
        out.uniform_(generator=generator)
    else:
        _integers(out, generator)


def _integers(out: torch.Tensor, generator: torch.Generator) -> None:
    """Small integers, exact in every dtype."""
    low = 0 if out.dtype in (torch.uint8, torch.bool) else -8
    high = 2 if out.dtype is torch.bool else 9
    out.random_(low, high, generator=generator)


_SPECIALS = (math.inf, math.nan, -math.inf, -math.inf, -math.inf)
_INITS = {"normal": _normal, "uniform": _uniform, "integers": _integers}


def _allocate(spec: Input, device: str) -> torch.Tensor:
    return torch.empty(_storage_shape(spec), dtype=torch_dtype(spec.dtype), device=device)


def _storage(x: torch.Tensor, spec: Input) -> torch.Tensor:
    """All of the memory that an input of this layout lies in, as `_allocate` made it."""
    whole = torch.empty(0, dtype=x.dtype, device=x.device)
    return whole.set_(x.untyped_storage(), 0, _storage_shape(spec))


def _storage_shape(spec: Input) -> list[int]:
    """Larger than the input where the layout leaves gaps."""
    shape = list(spec.shape)
    if spec.layout == "transposed":
        shape[-2:] = shape[:-3:-1]
    elif spec.layout == "strided":
        shape[-1] *= 2
    elif spec.layout == "offset1":
        shape = [math.prod(shape) + 1]
    return shape


def _view(storage: torch.Tensor, spec: Input) -> torch.Tensor:
    if spec.layout == "transposed":
        return storage.transpose(-1, -2)
    if spec.layout == "strided":
        return storage[..., ::2]
    if spec.layout == "offset1":
        return storage[1:].view(spec.shape)
    return storage


def _read(case: Case, spec: Input) -> torch.Tensor:
    values = _load(Path(spec.file))
    if tuple(values.shape) != spec.shape:
        found = "x".join(map(str, values.shape))
        wanted = "x".join(map(str, spec.shape))
        sizes = " ".join(f"{dim}={size}" for dim, size in case.shape.items())
        raise Refusal(
            f"inputs.{spec.name}: {spec.file} is {found}, and {sizes} needs {wanted}: "
            "set shape.<dim>= to the file's sizes"
        )
    if values.dtype != torch_dtype(spec.dtype):
        found = str(values.dtype).removeprefix("torch.")
        raise Refusal(
            f"inputs.{spec.name}: {spec.file} is {found}, and the case is {spec.dtype}: set dtype={found}"
        )
    storage = _allocate(spec, case.device)
    view = _view(storage, spec)
    return view.copy_(values)


def _load(path: Path) -> torch.Tensor:
    try:
        if path.suffix == ".npy":
            import numpy

            return torch.from_numpy(numpy.load(path, allow_pickle=False))
        values = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, TypeError, EOFError, RuntimeError, UnpicklingError) as error:
        kind = "numpy.save(path, array)" if path.suffix == ".npy" else "torch.save(tensor, path)"
        raise Refusal(f"{path} cannot be read as what {kind} writes") from error
    if not isinstance(values, torch.Tensor):
        raise Refusal(f"{path} holds a {type(values).__name__}, not one tensor: torch.save(tensor, path)")
    return values
