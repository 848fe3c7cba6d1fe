"""Holds plain data against the dataclasses of `schema.py`: every fault found, each with its place."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable
from typing import Any

NOUNS = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    list: "a list", dict: "a mapping", type(None): "null",
}  # fmt: skip


def nearest(name: object, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` or, when nothing is near, `; there is a, b, c`; empty without names."""
    names = [str(each) for each in known]
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there is {', '.join(names)}" if names else ""


@functools.cache
def fields(node: type) -> dict[str, tuple[Any, bool]]:
    """Name -> (type, has a default) of a dataclass."""
    hints = typing.get_type_hints(node)
    missing = dataclasses.MISSING
    return {
        f.name: (hints[f.name], f.default is not missing or f.default_factory is not missing)
        for f in dataclasses.fields(node)
    }


def defaults(node: type) -> dict[str, Any]:
    """What the fields of a dataclass are when they are not given; fresh lists and mappings."""
    made = {}
    for each in dataclasses.fields(node):
        if each.default is not dataclasses.MISSING:
            made[each.name] = each.default
        elif each.default_factory is not dataclasses.MISSING:
            made[each.name] = each.default_factory()
    return made


def conform(kind: Any, value: Any, where: str) -> list[str]:
    """The faults of `value` as a `kind` (a dataclass, list[..], dict[..], a union or a plain type)."""
    if kind is Any:
        return []
    if dataclasses.is_dataclass(kind):
        return _mapping(kind, value, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _union(inner, value, where)
    if origin is list:
        return _list(inner[0], value, where)
    if origin is dict:
        return _dict(inner[1], value, where)
    return [] if _is(kind, value) else [_wrong(where, NOUNS[kind], value)]


def _is(kind: type, value: Any) -> bool:
    """An int is a float here, but a bool is no number."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float)) if kind is float else isinstance(value, kind)


def _wrong(where: str, noun: str, value: Any) -> str:
    shown = "null" if value is None else repr(value)
    return f"{where}: expected {noun}, got {shown if len(shown) < 60 else shown[:57] + '...'}"


def _union(kinds: tuple[Any, ...], value: Any, where: str) -> list[str]:
    """No fault when one kind fits; else the faults of the one kind of the value's own form."""
    tried = [(kind, conform(kind, value, where)) for kind in kinds]
    if any(not faults for _, faults in tried):
        return []
    form = dict if isinstance(value, dict) else list if isinstance(value, list) else None
    for kind, faults in tried:
        if form and _form(kind) is form:
            return faults
    nouns = dict.fromkeys(NOUNS[_form(kind)] for kind in kinds)
    return [_wrong(where, " or ".join(nouns), value)]


def _form(kind: Any) -> type:
    return dict if dataclasses.is_dataclass(kind) else typing.get_origin(kind) or kind


def _list(kind: Any, value: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        return [_wrong(where, "a list", value)]
    return [fault for i, each in enumerate(value) for fault in conform(kind, each, f"{where}[{i}]")]


def _dict(kind: Any, value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [_wrong(where, "a mapping", value)]
    faults = []
    for name, each in value.items():
        if not isinstance(name, str):
            faults.append(_wrong(where, "names as keys", name))
        faults += conform(kind, each, f"{where}.{name}")
    return faults


def _mapping(node: type, value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [_wrong(where, "a mapping", value)]
    known, prefix = fields(node), f"{where}." if where else ""
    faults = []
    for name, each in value.items():
        if name in known:
            faults += conform(known[name][0], each, f"{prefix}{name}")
        else:
            faults.append(f"{prefix}{name}: unknown key{nearest(name, known)}")
    absent = [name for name, (_, optional) in known.items() if not optional and name not in value]
    return faults + [f"{prefix}{name}: missing" for name in absent]
