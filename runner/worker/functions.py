"""The functions and constants that a call must leave as they were: the runner's, Python's and torch's."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import json
import math
import operator
import os
import pickle
import random
import select
import socket
import statistics
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import torch

_PYTHONS = (builtins, ctypes, gc, json, math, os, pickle, random, random.Random, random.SystemRandom)
_PYTHONS += (select, socket, statistics, sys, time)
_TORCHS = (torch, torch.nn.functional, torch.Tensor, torch.cuda, torch.cuda.Event, torch.autograd)
_TORCHS += (torch.autograd.Function, torch.autograd.profiler, torch.autograd.profiler.profile)
_LAUNCHERS = (("triton.runtime.jit", "JITFunction"), ("triton.runtime.interpreter", "InterpretedFunction"))
_CLOSED = (torch.Tensor, torch.cuda.Event)  # nothing is added to these: it would come before the built-in one
_PICKLES = "__slotnames__"  # copying and pickling leave it in a class
_TORCH = os.path.dirname(torch.__file__) + os.sep
_CALLABLE = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)
_CALLABLE += (classmethod, staticmethod)
_EMPTY = types.CellType()


class Functions:
    """What was so when it was made; `changes` names what was replaced since."""

    def __init__(self) -> None:
        own = _own_modules()
        named = [
            (f"{module.__name__}.{name}", vars(module), name, value, _is_own(module))
            for module in (*_PYTHONS, *_TORCHS, *_launchers(), *own)
            for name, value in _functions(module)
        ]
        self._named = named
        functions = {id(each[3]): each[3:] for each in named if isinstance(each[3], types.FunctionType)}
        self._code = [(_full_name(value), value, value.__code__) for value, _ in functions.values()]
        self._own = [(_full_name(value), value, taken(value)) for value, own in functions.values() if own]
        self._names = [(module, frozenset(vars(module))) for module in _CLOSED]
        self._constants = [
            (f"{module.__name__}.{name}", vars(module), name, value)
            for module in own
            for name, value in vars(module).items()
            if not name.startswith("__") and not callable(value)
        ]
        self._held = [(words, value, held) for words, *_, value in self._constants if (held := _held(value))]

    def changes(self) -> list[str]:
        return [*self._replaced(), *self._edited(), *self._added(), *self._other_constants()]

    def _replaced(self) -> Iterator[str]:
        for words, space, name, value, own in self._named:
            if space.get(name) is not value and (own or not _torchs_own(space.get(name))):
                yield f"{words} (replaced)"

    def _edited(self) -> Iterator[str]:
        for words, value, code in self._code:
            if value.__code__ is not code:
                yield f"{words} (replaced)"
        for words, value, before in self._own:
            now = taken(value)
            if len(now) != len(before) or any(map(operator.is_not, now, before)):
                yield f"{words} (other defaults)"

    def _added(self) -> Iterator[str]:
        for module, names in self._names:
            for name in sorted(set(vars(module)) - names - {_PICKLES}):
                yield f"{module.__name__}.{name} (replaced: it now comes before the built-in one)"

    def _other_constants(self) -> Iterator[str]:
        for words, space, name, value in self._constants:
            if space.get(name) is not value:
                yield f"{words} ({said(value)} before)"
        for words, value, held in self._held:
            if _held(value) != held:
                yield f"{words} (other attributes)"


def said(value: Any) -> str:
    return str(value) if len(str(value)) <= 40 else str(value)[:37] + "..."


def _launchers() -> list[Any]:
    """Where Triton's launches begin; none where it is not installed."""
    found = []
    for module, name in _LAUNCHERS:
        with contextlib.suppress(ImportError):
            found.append(getattr(__import__(module, fromlist=[name]), name))
    return found


def _held(value: Any) -> dict[str, int]:
    """Attributes of an object that a module made, a source of random numbers say; by identity."""
    if isinstance(value, types.ModuleType):
        return {}
    return {name: id(one) for name, one in getattr(value, "__dict__", {}).items()}


def _own_modules() -> list[Any]:
    """The runner's modules, and their classes."""
    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith("runner.") and m is not None]
    classes = [
        v for m in modules for v in vars(m).values() if isinstance(v, type) and v.__module__ == m.__name__
    ]
    return [*modules, *classes]


def _is_own(module: Any) -> bool:
    return _home(module).startswith("runner.")


def _home(module: Any) -> str:
    return getattr(module, "__module__", module.__name__)  # of a class; or the module itself


def _full_name(function: types.FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def taken(function: types.FunctionType) -> list[Any]:
    """What a function takes where nothing is said, and its cells; by identity."""
    found = [function.__defaults__]
    if function.__kwdefaults__:
        found += function.__kwdefaults__.values()
    if function.__closure__:
        found += [cell.cell_contents for cell in function.__closure__ if cell != _EMPTY]
    return found


def _torchs_own(function: Any) -> bool:
    """torch wraps a few functions of its own when its compiler is first used."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


def _functions(module: Any) -> list[tuple[str, Any]]:
    """The runner's, those that it imported too; of others public functions and classes.

    torch fills in private ones as it goes along.
    """
    if _is_own(module):
        return [(n, v) for n, v in vars(module).items() if callable(v)]
    named = [(n, v) for n, v in vars(module).items() if isinstance(v, _CALLABLE)]
    private = not _home(module).startswith("torch")
    return [(n, v) for n, v in named if private or not n.startswith("_")]
