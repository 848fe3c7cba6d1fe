"""Headers of .npy files: what an input's file holds, held against the run before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.model import InputSpec, Op, Refusal
from runner.op import dtypes, shapes


@dataclass(frozen=True)
class Header:
    """Shape and dtype of the array in a file."""

    shape: tuple[int, ...]
    dtype: str


def header(path: Path) -> Header:
    """The header alone, whatever the size of the array. Raises Refusal, half a sentence."""
    from numpy.lib import format as npy  # 0.1 s, for runs that have such a file

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        with path.open("rb") as file:
            version = npy.read_magic(file)
            if version not in readers:
                raise ValueError(f"version {version} is for arrays with named fields")
            shape, _, dtype = readers[version](file)
    except (OSError, ValueError) as error:
        raise Refusal(f"cannot be read as what numpy.save(path, array) writes ({error})") from error
    if not dtype.isnative:
        raise Refusal("its numbers have another machine's byte order; array.astype('=f4') turns them")
    return Header(tuple(map(int, shape)), dtype.name)


def dims(op: Op, headers: Mapping[str, Header]) -> tuple[dict[str, int], list[str]]:
    """The dims that the files give where an input's sizes are plain dims, and where two files disagree."""
    found: dict[str, int] = {}
    givers: dict[str, str] = {}
    faults = []
    for name, spec, each in _pairs(op, headers):
        axes = _axes(op, spec, each)
        if len(each.shape) != len(axes):
            continue  # `faults` says so
        for dim, size in zip(axes, each.shape, strict=True):
            if dim in op.dims and found.setdefault(dim, size) != size:
                other = f"{found[dim]} in that of {givers[dim]}"
                faults.append(f"inputs.{name}: dim {dim} is {size} in its file and {other}; they must agree")
            givers.setdefault(dim, name)
    return found, faults


def faults(op: Op, headers: Mapping[str, Header], shape: dict[str, int], attrs: dict[str, Any]) -> list[str]:
    """Files whose shape is not the one that a case needs."""
    wrong = []
    for name, spec, each in _pairs(op, headers):
        try:
            needed = shapes.of_input(op, spec.shape, shape, attrs, name)
        except Refusal:
            continue  # planning says so
        if each.shape != needed:
            sizes = " ".join(f"{dim}={size}" for dim, size in shape.items())
            wrong.append(
                f"inputs.{name}: the file is {_times(each.shape)}, and {sizes or 'the op'} needs "
                f"{_times(needed)}{_remedy(op, spec, each)}"
            )
    return wrong


def dtype_faults(op: Op, headers: Mapping[str, Header], chosen: Iterable[str]) -> list[str]:
    """Files whose dtype is not the one that the run takes its input in."""
    wrong = []
    for entry in chosen:
        parts = dtypes.per_input(entry, len(op.inputs))
        needed = {spec.name: spec.dtype or part for spec, part in zip(op.inputs, parts, strict=True)}
        for name, spec, each in _pairs(op, headers):
            if each.dtype != needed[name]:
                known = spec.dtype is None and each.dtype in op.dtypes
                remedy = f"set dtype={each.dtype}" if known else f"save it as {needed[name]}"
                wrong.append(f"inputs.{name}: the file is {each.dtype}, and {entry} is asked for: {remedy}")
    return wrong


def _pairs(op: Op, headers: Mapping[str, Header]) -> Iterable[tuple[str, InputSpec, Header]]:
    return [(spec.name, spec, headers[spec.name]) for spec in op.inputs if spec.name in headers]


def _axes(op: Op, spec: InputSpec, each: Header) -> tuple[str, ...]:
    """The sizes of an input's axes: all, or those that a shape may not leave out."""
    if len(each.shape) == len(spec.shape):
        return tuple(spec.shape)
    return tuple(size for size in spec.shape if op.dim_defaults.get(size, size) is not None)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one number"


def _remedy(op: Op, spec: InputSpec, each: Header) -> str:
    axes = _axes(op, spec, each)
    if len(each.shape) != len(axes):
        return f": an array of {len(axes)} dims is needed"
    words = [f"shape.{d}={n}" for d, n in zip(axes, each.shape, strict=True) if d in op.dims]
    return f": type {' '.join(words)}" if words else ""
