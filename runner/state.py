"""The process's global state, so that no variant is timed or checked in a world another one changed."""

from __future__ import annotations

import os
import time
import types
from typing import Any

import torch

_MODULES = (time, torch, torch.nn.functional, torch.Tensor, torch.cuda, torch.cuda.Event, torch.autograd)
_TORCH = os.path.dirname(torch.__file__) + os.sep
_CALLABLE = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)


class State:
    """What was so when it was made; `changes` says what is not so any more."""

    def __init__(self) -> None:
        self._settings = _settings()
        self._functions = [(module, name, value) for module in _MODULES for name, value in _functions(module)]

    def changes(self) -> str:
        """Half a sentence naming what differs; empty when nothing does."""
        now = _settings()
        moved = {name: old for name, old in self._settings.items() if now[name] != old}
        found = [f"{name} ({old} before, {now[name]} now)" for name, old in moved.items()]
        found += [
            f"{module.__name__}.{name} (replaced)"
            for module, name, value in self._functions
            if vars(module).get(name) is not value and not _torchs_own(vars(module).get(name))
        ]
        return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def _torchs_own(function: Any) -> bool:
    """torch wraps a few functions of its own when its compiler is first used."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


def _functions(module: Any) -> list[tuple[str, Any]]:
    """Public functions and classes: torch fills in private ones as it goes along."""
    return [(n, v) for n, v in vars(module).items() if not n.startswith("_") and isinstance(v, _CALLABLE)]


def _settings() -> dict[str, Any]:
    return {
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "the number of threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "TF32 in cuDNN": torch.backends.cudnn.allow_tf32,
        "the working directory": _folder(),
        **_cuda(),
    }


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a removed folder"


def _cuda() -> dict[str, Any]:
    if not torch.cuda.is_initialized():
        return {"the current CUDA device": None, "the current stream": None}
    stream = torch.cuda.current_stream()
    return {"the current CUDA device": torch.cuda.current_device(), "the current stream": stream.cuda_stream}
