"""From a declared variant to a callable that is ready to be called. Runs in the worker."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import operator
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from runner.build.library import BuildError, StaleProcess, build_library, key_of
from runner.build.sources import KERNELS, hash_files, python_files
from runner.model import Target, Variant

__all__ = ["BuildError", "Built", "NotInstalled", "StaleProcess", "build"]

_NAMESPACE = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY\w*\(\s*(\w+)")
_DEFINED = re.compile(r"\.def\(\s*\"(\w+)\s*[.(\"]")
_imported: dict[Path, str] = {}  # Python files behind the targets so far -> sha256 when first asked for
_loaded: dict[tuple[str, ...], str] = {}  # sources -> key of the library in this process


class NotInstalled(Exception):
    """A package that the variant requires is missing here: the row is skipped with this sentence."""


@dataclass(frozen=True)
class Built:
    """A variant that can be called: `fn(*inputs, **attrs, **kwargs, **params)`.

    `build_ms` is the milliseconds that its library took, compiled or looked up (`cached`), and both
    are None when there is nothing to build. `log` is what the compilers said. `module` is the name
    in sys.modules of the target's module; empty for an operator.
    """

    fn: Callable[..., Any]
    build_ms: float | None = None
    cached: bool | None = None
    log: str = ""
    module: str = ""


def build(variant: Variant, device: str, keep: Path) -> Built:
    """Compile, load and resolve `variant` for `device` ("cpu" or "cuda:N"); leave build files in `keep`.

    Raises NotInstalled, BuildError (a sentence for the user), StaleProcess (ask again in a fresh
    process), and whatever importing the target's module raises.
    """
    _require(variant)
    _check_imported(variant)
    library = _library(variant, device, keep) if variant.sources else {}
    fn, module = _resolve(variant)
    if variant.compile is not None:
        fn = _compiled(fn, variant.compile)
    return Built(fn, module=module, **library)


def _require(variant: Variant) -> None:
    for name in variant.requires:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # the parent of a dotted name
            found = None
        if found is None:
            raise NotInstalled(f"{variant.name} needs the package {name}, which is not installed.")


def _check_imported(variant: Variant) -> None:
    """Refuse a target whose files changed since this process first asked for them.

    A module cannot be imported twice: its kernels and operators are registered already.
    """
    for path in python_files(variant):
        content = hash_files([path])
        if _imported.setdefault(path, content) != content:
            raise StaleProcess(f"{path} changed after it was imported.")


def _library(variant: Variant, device: str, keep: Path) -> dict[str, Any]:
    sources = variant.sources
    key = key_of(sources, device)
    if _loaded.get(sources, key) != key:
        raise StaleProcess(f"{variant.name}: its sources changed after their library was loaded.")
    if sources not in _loaded:
        _refuse_double(variant)
    library = build_library(sources, device, key, keep)
    if sources not in _loaded and not library.loaded:
        _load(library.path)
    _loaded[sources] = key
    return {"build_ms": library.ms, "cached": library.cached, "log": library.log}


def _refuse_double(variant: Variant) -> None:
    """Refuse what would register an operator twice: that ends the process, or swaps the kernel behind it."""
    for source in variant.sources:
        text = Path(source).read_text(errors="replace")
        spaces = set(_NAMESPACE.findall(text))
        taken = {
            f"{space}::{name}" for space in spaces for name in _DEFINED.findall(text) if _known(space, name)
        }
        if taken or (spaces and any(source in loaded for loaded in _loaded)):
            what = " and ".join(sorted(taken)) or "its operators"
            raise BuildError(
                f"{Path(source).name} registers {what} a second time: list the same sources for all variants "
                f"that share it, or give the operator another name."
            )


def _known(namespace: str, name: str) -> bool:
    return hasattr(getattr(torch.ops, namespace), name)


def _load(path: Path) -> None:
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise BuildError(f"{path} does not load: {error.__cause__ or error}") from error


def _resolve(variant: Variant) -> tuple[Callable[..., Any], str]:
    """The target and the name of its module."""
    target = variant.target
    if target.module.startswith("torch.ops."):
        return _operator(variant), ""
    module = _load_file(Path(target.file).resolve()) if target.file else _import(target)
    return operator.attrgetter(target.attribute)(module), module.__name__


def _import(target: Target) -> types.ModuleType:
    if target.module not in sys.modules:
        importlib.invalidate_caches()  # the file may be younger than the process
    module = importlib.import_module(target.module)
    _check_place(target, module)
    return module


def _operator(variant: Variant) -> Callable[..., Any]:
    namespace = getattr(torch.ops, variant.target.module.removeprefix("torch.ops."))
    try:
        return operator.attrgetter(variant.target.attribute)(namespace)
    except AttributeError as error:
        behind = " and ".join(Path(source).name for source in variant.sources) or "torch"
        raise BuildError(f"{behind} registers no operator {variant.target.text}.") from error


def _check_place(target: Target, module: types.ModuleType) -> None:
    """`kernels` is also the name of a published package: make sure that ours was imported."""
    if not target.path or not Path(target.path).is_relative_to(KERNELS):
        return
    found = Path(getattr(module, "__file__", None) or "").resolve()
    if found != Path(target.path).resolve():
        raise BuildError(f"{target.module} was imported from {found}, not from {target.path}.")


class _SourceOnly(importlib.machinery.SourceFileLoader):
    """Never reads bytecode: its check by whole seconds and size misses a quick edit."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _load_file(path: Path) -> types.ModuleType:
    """The module in `path`, under a name of its own, so that equal file names do not meet."""
    name = f"{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _SourceOnly(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module  # before it runs: dataclasses and pickle look their module up
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _compiled(fn: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """torch.compile of a copy of `fn` with a code object of its own.

    Dynamo counts recompilations by code object, and runs eagerly or refuses past its limit: cases
    that shared one would use up each other's. One graph and static shapes, unless `options` differ.
    """
    return torch.compile(_copy_function(fn), **{"fullgraph": True, "dynamic": False, **options})


def _copy_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(fn, types.FunctionType):  # a built-in, an operator, an object that is called
        return _copy_function(lambda *args, **kwargs: fn(*args, **kwargs))
    copy = types.FunctionType(
        fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__dict__.update(fn.__dict__)
    copy.__module__, copy.__qualname__ = fn.__module__, fn.__qualname__
    return copy
