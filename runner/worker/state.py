"""The process's global state, so that no variant is timed or checked in a world another one changed."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import gc
import json
import math
import os
import pickle
import random
import signal
import sys
import threading
import time
import types
from collections.abc import Sequence
from typing import Any

import torch

from runner.process import lifetimes

_PYTHONS = (builtins, gc, json, math, os, pickle, random, sys, time)
_TORCHS = (torch, torch.nn.functional, torch.Tensor, torch.cuda, torch.cuda.Event, torch.autograd)
_LAUNCHERS = (("triton.runtime.jit", "JITFunction"), ("triton.runtime.interpreter", "InterpretedFunction"))
_SIGNALS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_HELPERS = (
    "torch/_inductor/compile_worker",
    "multiprocessing.resource_tracker",
)  # torch's own, and they stay
_TINY, _HALF_ULP = sys.float_info.min, 2.0**-54
_CLOSED = (torch.Tensor, torch.cuda.Event)  # nothing is added to these: it would come before the built-in one
_TORCH = os.path.dirname(torch.__file__) + os.sep
_CALLABLE = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)
_INSTALLED = (sys.prefix, sys.base_prefix, "<")
_PERSISTING_L2 = 6  # cuda.h: CU_LIMIT_PERSISTING_L2_CACHE_SIZE


class State:
    """What was so when it was made; `changes` says what is not so any more.

    `objects` are the harness's own: nobody may give them other functions or numbers.
    """

    def __init__(self, objects: Sequence[Any] = ()) -> None:
        self._settings = _settings()
        self._functions = [
            (vars(module), module, name, value, getattr(value, "__code__", None))
            for module in (*_PYTHONS, *_TORCHS, *_launchers(), *_own_modules())
            for name, value in _functions(module)
        ]
        self._names = [(module, frozenset(vars(module))) for module in _CLOSED]
        self._objects = [(one, _fixed(one)) for one in objects]
        self._constants = [(vars(module), module, _constants(module)) for module in _own_modules()]
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._children = lifetimes.children()
        self._operators = _operators()

    def changes(self, operators: bool = False) -> str:
        """Half a sentence naming what differs; empty when nothing does.

        `operators`: whether those of torch are looked at as well, which takes 50 ms.
        """
        now = _settings()
        moved = {name: old for name, old in self._settings.items() if now[name] != old}
        found = [f"{name} ({_said(old)} before, {_said(now[name])} now)" for name, old in moved.items()]
        found += [
            f"{module.__name__}.{name} (replaced)"
            for names, module, name, value, code in self._functions
            if (names.get(name) is not value or (code is not None and value.__code__ is not code))
            and not _torchs_own(names.get(name), value)
        ]
        for module, names in self._names:
            found += [
                f"{module.__name__}.{name} (replaced: it now comes before the built-in one)"
                for name in sorted(set(vars(module)) - names)
            ]
        found += [
            f"the runner's {type(one).__name__}" for one, fixed in self._objects if _fixed(one) != fixed
        ]
        found += [
            f"{module.__name__}.{name} ({_said(old)} before)"
            for names, module, constants in self._constants
            for name, old in constants.items()
            if names.get(name) is not old
        ]
        found += [f"the thread {name}, which still runs" for name in self._running()]
        found += [f"the process {name}, which still runs" for name in self._left()]
        if operators:
            found += [f"the operator {name} (other kernels are behind it)" for name in self._replaced()]
        return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")

    def _replaced(self) -> list[str]:
        """Operators behind which there are other kernels. Most are as they were to the letter."""
        now = _operators()
        moved = [(name, old) for name, old in self._operators.items() if now.get(name) != old]
        return [name for name, old in moved if _kernels(now.get(name, "")) != _kernels(old)]

    def _left(self) -> list[str]:
        """Children that nobody but a variant started."""
        new = lifetimes.children() - self._children
        said = {pid: lifetimes.command(pid) for pid in new}
        return [f"{pid} ({words[:40]})" for pid, words in said.items() if words and not _helps(words)]

    def _running(self) -> list[str]:
        """Threads that run code which is in no installed package: nobody but a variant started those."""
        new = [t for t in threading.enumerate() if t.ident not in self._threads]
        if not new:
            return []
        frames = sys._current_frames()
        return [thread.name for thread in new if _foreign(frames.get(thread.ident))]


def _foreign(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_INSTALLED):
            return True
        frame = frame.f_back
    return False


def _helps(command: str) -> bool:
    return any(helper in command for helper in _HELPERS)


def _launchers() -> list[Any]:
    """Where Triton's launches begin; none where it is not installed."""
    found = []
    for module, name in _LAUNCHERS:
        with contextlib.suppress(ImportError):
            found.append(getattr(__import__(module, fromlist=[name]), name))
    return found


def _operators() -> dict[str, str]:
    """What is registered for each of torch's operators."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return {name: torch._C._dispatch_dump(name) for name in names}


def _kernels(dump: str) -> str:
    """Without meta kernels: those compute nothing, and come late."""
    return "\n".join(line for line in dump.splitlines() if not line.startswith("Meta"))


def _constants(module: Any) -> dict[str, Any]:
    return {n: v for n, v in vars(module).items() if not n.startswith("__") and not callable(v)}


def _own_modules() -> list[Any]:
    """The runner's modules, and their classes."""
    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith("runner.") and m is not None]
    return [*modules, *(v for m in modules for _, v in _functions(m) if isinstance(v, type))]


def _fixed(one: Any) -> dict[str, Any]:
    """The functions and numbers of an object."""
    return {n: v for n, v in vars(one).items() if callable(v) or isinstance(v, (int, float, str))}


def _said(value: Any) -> str:
    return str(value) if len(str(value)) <= 40 else str(value)[:37] + "..."


def _torchs_own(now: Any, before: Any) -> bool:
    """torch wraps a few functions of its own when its compiler is first used; it gives none other code."""
    code = getattr(now, "__code__", None)
    return now is not before and code is not None and code.co_filename.startswith(_TORCH)


def _functions(module: Any) -> list[tuple[str, Any]]:
    """Public functions and classes: torch fills in private ones as it goes along."""
    home = getattr(module, "__module__", module.__name__)  # of a class; or the module itself
    own = home.startswith("runner.")
    named = [(n, v) for n, v in vars(module).items() if isinstance(v, _CALLABLE)]
    if not own:
        return [(n, v) for n, v in named if not n.startswith("_")]
    return [(n, v) for n, v in named if getattr(v, "__module__", "") == home]


def _settings() -> dict[str, Any]:
    return {
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "the number of threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "TF32 in cuDNN": torch.backends.cudnn.allow_tf32,
        "reduced precision in float16 products": _matmul("fp16"),
        "reduced precision in bfloat16 products": _matmul("bf16"),
        "cuDNN's benchmarks": torch.backends.cudnn.benchmark,
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu")),
        "the modes of dispatch": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "the random numbers' state": hash(bytes(torch.get_rng_state().numpy())),
        "the garbage collector": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
        "the trace and profile functions": (sys.gettrace(), sys.getprofile()),
        "the processors it may use": _processors(),
        "the working directory": _folder(),
        "its priority": os.getpriority(os.PRIO_PROCESS, 0),
        "numbers that are tiny": _TINY / 2 > 0,
        "how numbers are rounded": (1.0 + _HALF_ULP, -1.0 - _HALF_ULP),
        "oneDNN": torch._C._get_mkldnn_enabled(),
        "cuDNN": (torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic),
        "what signals call": tuple(map(signal.getsignal, _SIGNALS)),
        "timers that send signals": tuple(signal.getitimer(timer) > (0, 0) for timer in _TIMERS),
        **_cuda(),
    }


def _matmul(kind: str) -> Any:
    return getattr(torch.backends.cuda.matmul, f"allow_{kind}_reduced_precision_reduction")


def _processors() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a removed folder"


def _cuda() -> dict[str, Any]:
    names = (
        "the current CUDA device",
        "the current stream",
        "the GPU's random numbers' state",
        "the part of L2 for lines that stay",
    )
    if not torch.cuda.is_initialized():
        return dict.fromkeys(names)
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream()
    random = hash(bytes(torch.cuda.get_rng_state(device).numpy()))
    return dict(zip(names, (device, stream.cuda_stream, random, _persisting_l2()), strict=True))


def _persisting_l2() -> int:
    """Bytes of L2 set aside for lines that a flush does not evict: 0 unless somebody asked for them."""
    size = ctypes.c_size_t(0)
    code = _driver().cuCtxGetLimit(ctypes.byref(size), _PERSISTING_L2)
    return size.value if code == 0 else -code


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
