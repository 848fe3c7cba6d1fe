"""What the compilers made of a variant: registers, spills, PTX, generated source. Runs in the worker."""

from __future__ import annotations

import contextlib
import csv
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any
from unittest import mock

from runner.build.variant import Built
from runner.model import Variant

TABLE = "registers.csv"

_ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
# What reading somebody else's internals can raise. Failing to keep a listing never costs a verdict.
_UNREADABLE = (AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel. Sizes in bytes: Triton and Inductor tell only the number of spills, as stores."""

    name: str
    target: str
    registers: int
    spill_stores: int
    spill_loads: int
    shared: int


@dataclass
class Captured:
    """What a first call compiled: Inductor's sources as they come, Triton's kernels by exclusion."""

    sources: list[str] = field(default_factory=list)
    before: set[int] = field(default_factory=set)  # id of the Triton kernels that were there already


@dataclass(frozen=True)
class Artifacts:
    """`files` are names inside the variant's folder, `summary` is for people, `note` says what failed."""

    files: tuple[str, ...]
    summary: str
    note: str = ""


@contextlib.contextmanager
def capture(variant: Variant, built: Built) -> Iterator[Captured]:
    """Around the first call of `built.fn`: remember what gets compiled in it, from a cache or anew."""
    captured = Captured()
    with contextlib.suppress(*_UNREADABLE):  # collect() meets the same trouble and reports it
        captured.before = {id(kernel) for kernel in _triton_kernels(built.module)}
    with _inductor_hook(captured) if variant.compile is not None else contextlib.nullcontext():
        yield captured


def collect(variant: Variant, built: Built, captured: Captured, keep: Path) -> Artifacts:
    """Write what was compiled to `keep`, next to the build's log and PTX that are there already."""
    keep.mkdir(parents=True, exist_ok=True)
    try:
        kernels = parse_ptxas(built.log) + _keep_triton(built, captured, keep)
        kernels += _keep_inductor(captured.sources, keep)
        _write_table(kernels, keep)
        summary, note = _summary(variant, built, captured, kernels), ""
    except _UNREADABLE as error:
        summary, note = "", f"What the compiler said could not be kept: {type(error).__name__}: {error}"
    return Artifacts(tuple(sorted(path.name for path in keep.iterdir() if path.is_file())), summary, note)


def parse_ptxas(log: str) -> list[Kernel]:
    """The kernels in the output of `ptxas -v`, in its order, names demangled where c++filt exists."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    current: dict[str, int] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = function = match[1]
            current = found.setdefault((entry, match[2]), {})
        elif match := _PROPERTIES.search(line):
            function = match[1]  # a device function that was not inlined has its own
        elif (match := _SPILLS.search(line)) and function == entry:
            current["stores"], current["loads"] = int(match[1]), int(match[2])
        elif match := _USED.search(line):
            shared = _SHARED.search(line)
            current["registers"], current["shared"] = int(match[1]), int(shared[1]) if shared else 0
    names = _demangle([name for name, _ in found])
    return [
        Kernel(name, target, k["registers"], k.get("stores", 0), k.get("loads", 0), k["shared"])
        for name, ((_, target), k) in zip(names, found.items(), strict=True)
        if "registers" in k
    ]


def _demangle(names: list[str]) -> list[str]:
    """`void ns::softmax_row<float>(float const*, ...)` becomes `ns::softmax_row<float>`."""
    tool = shutil.which("c++filt")
    if not tool or not names:
        return names
    done = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return [_short(line) for line in lines] if len(lines) == len(names) else names


def _short(signature: str) -> str:
    """The name with its template arguments: up to the first parenthesis outside angle brackets."""
    signature = signature.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for i, letter in enumerate(signature):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            return signature[:i]
    return signature


def _summary(variant: Variant, built: Built, captured: Captured, kernels: list[Kernel]) -> str:
    if kernels:
        return describe(kernels)
    if captured.sources:
        return f"{len(captured.sources)} generated module(s), no GPU kernel"
    if variant.language == "triton" and _interpreted(built.module):
        return "Triton's interpreter: nothing was compiled"
    return ""


def describe(kernels: list[Kernel]) -> str:
    """One line: `softmax_row<float>: 32 registers, no spills`."""
    worst = max(kernels, key=lambda kernel: (kernel.spill_stores + kernel.spill_loads, kernel.registers))
    spilled = worst.spill_stores + worst.spill_loads
    said = (
        f"{spilled} spilled ({worst.spill_stores} stores, {worst.spill_loads} loads)"
        if spilled
        else "no spills"
    )
    if len(kernels) == 1:
        return f"{worst.name}: {worst.registers} registers, {said}"
    least, most = (choose(kernel.registers for kernel in kernels) for choose in (min, max))
    where = f", most in {worst.name}" if spilled else ""
    return f"{len(kernels)} kernels: {least} to {most} registers, {said}{where}"


def _write_table(kernels: list[Kernel], keep: Path) -> None:
    if not kernels:
        return
    with (keep / TABLE).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in fields(Kernel)])
        writer.writerows(astuple(kernel) for kernel in kernels)


@contextlib.contextmanager
def _inductor_hook(captured: Captured) -> Iterator[None]:
    """Inductor hands each module that it generates or takes from a cache to this hook."""
    from torch._inductor.graph import GraphLowering

    with mock.patch.object(GraphLowering, "save_output_code", captured.sources.append):
        yield


def _keep_inductor(sources: list[str], keep: Path) -> list[Kernel]:
    for i, source in enumerate(sources):
        (keep / f"generated_{i}.py").write_text(source)
    return _inductor_kernels(set(sources)) if sources else []


def _inductor_kernels(sources: set[str]) -> list[Kernel]:
    """The Triton kernels of the loaded modules whose text is among `sources`; none on a CPU."""
    from torch._inductor.codecache import PyCodeCache

    kernels = {}
    for module in PyCodeCache.modules:
        path = Path(module.__file__ or "")
        if path.is_file() and path.read_text() in sources:
            for name, value in vars(module).items():
                for launcher in getattr(value, "launchers", []):  # one, once it is tuned
                    if launcher.n_regs is not None:
                        kernels[name] = _kernel(name, launcher, launcher.shared)
    return list(kernels.values())


def _kernel(name: str, compiled: Any, shared: int, target: str = "") -> Kernel:
    return Kernel(name, target, compiled.n_regs, compiled.n_spills or 0, 0, shared or 0)


def _keep_triton(built: Built, captured: Captured, keep: Path) -> list[Kernel]:
    """PTX and TTIR of the kernels that the call compiled, or of all when it found them compiled."""
    kernels = _triton_kernels(built.module)
    kernels = [kernel for kernel in kernels if id(kernel) not in captured.before] or kernels
    for kernel in kernels:
        for kind in ("ttir", "ptx"):
            if kind in kernel.asm:
                (keep / f"{kernel.name}_{kernel.hash[:8]}.{kind}").write_text(kernel.asm[kind])
    launched = [kernel for kernel in kernels if getattr(kernel, "n_regs", None) is not None]
    return [_kernel(k.name, k, k.metadata.shared, f"sm_{k.metadata.target.arch}") for k in launched]


def _triton_kernels(module: str) -> list[Any]:
    """The compiled kernels behind the @triton.jit functions that the target's module can see."""
    return [
        kernel
        for function in _jit_functions(module)
        for caches in getattr(function, "device_caches", {}).values()
        for kernel in caches[0].values()  # caches: (kernels by specialization, ...)
        if hasattr(kernel, "asm")
    ]


def _interpreted(module: str) -> bool:
    return any(not hasattr(function, "device_caches") for function in _jit_functions(module))


def _jit_functions(module: str) -> list[Any]:
    """@triton.jit functions in `module` and in the package mates whose functions or modules it uses."""
    top = module.partition(".")[0]
    if "triton" not in sys.modules or module not in sys.modules or top == "torch":
        return []
    own = vars(sys.modules[module])
    spaces = [own, *(vars(value) for value in own.values() if _is_mate(value, types.ModuleType, top))]
    spaces += [value.__globals__ for value in own.values() if _is_mate(value, types.FunctionType, top)]
    found = {id(jit): jit for space in spaces for value in list(space.values()) if (jit := _unwrap(value))}
    return list(found.values())


def _is_mate(value: Any, kind: type, top: str) -> bool:
    name = getattr(value, "__name__" if kind is types.ModuleType else "__module__", None) or ""
    return isinstance(value, kind) and name.partition(".")[0] == top


def _unwrap(value: Any) -> Any:
    """The JIT function inside autotuners and heuristics; None when there is none."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction, KernelInterface

    kinds = (JITFunction, InterpretedFunction)
    # type(), since isinstance() would wake lazy objects that the module happens to hold
    while issubclass(type(value), KernelInterface) and not issubclass(type(value), kinds):
        value = value.fn
    return value if issubclass(type(value), kinds) else None
