"""What compilers and libraries go by, for whoever calls them next: environment variables and options."""

from __future__ import annotations

import contextvars
import ctypes
import itertools
import os
import sys
from typing import Any

from torch.utils import _config_module

# What libraries put into the environment for themselves; and what of it others heed when it is added.
_THEIRS = (
    "TORCHINDUCTOR_CACHE_DIR",
    "_TORCHINDUCTOR",
    "TORCH_WARM_POOL",
    "TRITON_CACHE_DIR",
    "TRITON_PTXAS",
    "TRITON_LIBDEVICE_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_TOOLKIT",
    "CUDA_MODULE_LOADING",
    "CUBLAS_WORKSPACE_CONFIG",
    "NCCL",
    "KINETO",
    "KMP_DUPLICATE",
)
# In C's own environment these may be set by the libraries themselves.
_IN_C = ("TORCH", "PYTORCH", "TRITON", "CUDA", "CUBLAS", "CUDNN")
_HEEDED = (
    "CC",
    "CXX",
    "CPATH",
    "LD_",
    "NVCC",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "MALLOC_",
    "GLIBC_",
    "PYTHON",
    *_IN_C,
)
_FLAGS, _CS = "FLAGS", " (C's)"
_COMPILERS = ("torch._inductor.config", "torch._dynamo.config", "torch._functorch.config")
_SET_BY_TORCH = {"compile_threads", "suppress_errors", "capture_scalar_outputs"}
_KNOBS = ("compilation", "runtime", "language")
_environ = ctypes.POINTER(ctypes.c_char_p).in_dll(
    ctypes.CDLL(None), "environ"
)  # the variable itself, as it is now


def of_compilers() -> list[str]:
    """What was set in torch's compilers and in Triton, and so for every variant that these compile.

    Options of a variant's own are its `compile` key's, or arguments, which end with the compilation.
    """
    found = []
    for name in _COMPILERS:
        entries = getattr(sys.modules.get(name), "_config", {})
        found += [
            f"{name}.{key}" for key, entry in entries.items() if key not in _SET_BY_TORCH and _set(entry)
        ]
    knobs = sys.modules.get("triton.knobs")
    for name in _KNOBS if knobs else ():
        found += [f"triton.knobs.{name}.{knob}" for knob in vars(getattr(knobs, name))]
    return found


def _set(entry: Any) -> bool:
    """Whether an option of torch's compilers was given another value. A default that is a list is copied."""
    given = entry.user_override
    given = given.get() if isinstance(given, contextvars.ContextVar) else given
    return given is not _config_module._UNSET_SENTINEL and given != entry.default


def variables() -> dict[str, str]:
    """The environment, but for what libraries set for themselves; C's own, too, where it says otherwise.

    C's differs from Python's where somebody called `setenv`: what it heeds counts as a variable of its own.
    """
    found = {name: text for name, text in os.environ.items() if not name.startswith(_THEIRS)}
    held = _c_environment()
    differs = {name for name in found if held.get(name) != found[name]}
    differs |= {
        name
        for name in held.keys() - os.environ.keys()
        if heeded(name) and not name.startswith((*_THEIRS, *_IN_C))
    }
    return found | {f"{name}{_CS}": held.get(name, "") for name in differs}


def _c_environment() -> dict[str, str]:
    found = {}
    for entry in itertools.takewhile(bool, _environ) if _environ else ():
        name, _, text = os.fsdecode(entry).partition("=")
        found[name] = text
    return found


def heeded(name: str) -> bool:
    """Whether compilers, loaders or libraries heed a variable that was not there before."""
    return name.startswith(_HEEDED) or name.endswith((_FLAGS, _CS))
