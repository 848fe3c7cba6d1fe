"""What lies around a process's torch: what the system keeps for it, and who else is called as Python goes on.

A variant that changes the former is unfair to others; the latter is code of its own between two calls.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import torch

# Of /proc/self/status: masks of signals (also of handlers from C), and what else is one process's own.
_STATUS = ("Umask", "SigBlk", "SigIgn", "SigCgt", "THP_enabled", "Seccomp", "Mems_allowed_list")
# A profiler's library may take the first; glibc takes the others when a thread is first started.
_NOT_THEIRS = sum(1 << number - 1 for number in (signal.SIGUSR2, 32, 33))
_LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
# What libraries put into the environment for themselves; and what of it others heed when it is added.
_THEIRS = (
    "TORCH",
    "_TORCH",
    "PYTORCH",
    "TRITON",
    "CUDA",
    "CUBLAS",
    "CUDNN",
    "NCCL",
    "KINETO",
    "KMP_DUPLICATE",
)
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
)
_FLAGS = "FLAGS"
_TOOLS = 6  # numbers that sys.monitoring has for them
_asked: list[int] = []  # how often somebody wanted an audit hook


def refuse_audit_hooks() -> None:
    """None can be taken off again, or be listed: from now on there are no more. Once for a process."""

    def hook(event: str, arguments: tuple) -> None:
        if event == "sys.addaudithook":
            _asked.append(1)
            raise RuntimeError("the runner takes no audit hooks")

    sys.addaudithook(hook)


def settings() -> dict[str, Any]:
    """What a call has to leave as it was, by what a sentence calls it."""
    modes = torch._C._autograd
    return {
        **_status(),
        **{f"its limit {name}": resource.getrlimit(number) for name, number in _LIMITS.items()},
        "how it is scheduled": _scheduling(),
        "descriptors 0 to 2": tuple(map(_file, range(3))),
        "the interval between threads": sys.getswitchinterval(),
        "the audit hooks": len(_asked),
        "the tools that watch Python": _tools(),
        "what evaluates Python's frames": torch._C._dynamo.eval_frame.get_eval_frame_callback(),
        "autograd's search for anomalies": torch.is_anomaly_enabled(),
        "autograd's hooks for saved tensors": modes._top_saved_tensors_default_hooks(True),
    }


def variables() -> dict[str, str]:
    """The environment, but for what libraries set for themselves."""
    return {name: text for name, text in os.environ.items() if not name.startswith(_THEIRS)}


def heeded(name: str) -> bool:
    """Whether compilers, loaders or libraries heed a variable that was not there before."""
    return name.startswith(_HEEDED) or name.endswith(_FLAGS)


def _status() -> dict[str, str]:
    """What the kernel says of this process; nothing where there is no /proc."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        kept = {f"the process's {name}": found[name].strip() for name in _STATUS if name in found}
        caught = int(kept["the process's SigCgt"], 16)
        return kept | {"the process's SigCgt": f"{caught & ~_NOT_THEIRS:016x}"}
    return {}


def _scheduling() -> tuple[int, int]:
    if not hasattr(os, "sched_getscheduler"):
        return 0, 0
    return os.sched_getscheduler(0), os.sched_getparam(0).sched_priority


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _tools() -> tuple[str | None, ...]:
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return tuple(map(monitoring.get_tool, range(_TOOLS))) if monitoring else ()
