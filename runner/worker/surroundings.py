"""What lies around a process's torch: what the system keeps for it, and who else is called as Python goes on.

A variant that changes the former is unfair to others; the latter is code of its own between two calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import locale
import os
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

# Of /proc/self/status what is one process's own. Not every kernel says all of it.
_STATUS = (
    "Uid",
    "Gid",
    "Groups",
    "CapEff",
    "NoNewPrivs",
    "Umask",
    "THP_enabled",
    "Seccomp",
    "Mems_allowed_list",
)
_SIGNALS = sorted(map(int, signal.valid_signals()))  # without glibc's own
_LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
# Where torch and Triton are installed, and with them the libraries that they need.
_SPECS = tuple(filter(None, map(importlib.util.find_spec, ("torch", "triton"))))
PACKAGES = tuple(str(Path(spec.origin).resolve().parents[1]) + os.sep for spec in _SPECS if spec.origin)
_USUAL_RECURSION, _TORCHS_RECURSION = 1000, 2000
_LINUX = sys.platform == "linux"
_GET_TIMER_SLACK = 30  # linux/prctl.h
_TOOLS = 6  # numbers that sys.monitoring has for them
_asked: list[int] = []  # how often somebody wanted an audit hook


class _Action(ctypes.Structure):
    """The head of C's `struct sigaction`, and more room than the rest of it takes."""

    _fields_ = [("handler", ctypes.c_void_p), ("rest", ctypes.c_char * 504)]


class _Symbol(ctypes.Structure):
    """dlfcn.h: `Dl_info`."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


_sigaction, _dladdr = ctypes.CDLL(None).sigaction, ctypes.CDLL(None).dladdr
_sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_dladdr.argtypes = (ctypes.c_void_p, ctypes.c_void_p)


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
        "the signals that it blocks": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        **{f"its limit {name}": resource.getrlimit(number) for name, number in _LIMITS.items()},
        "how it is scheduled": _scheduling(),
        "descriptors 0 to 2": tuple(map(_file, range(3))),
        "the interval between threads": sys.getswitchinterval(),
        "the audit hooks": len(_asked),
        "the tools that watch Python": _tools(),
        "what evaluates Python's frames": torch._C._dynamo.eval_frame.get_eval_frame_callback(),
        "the recursion limit": _recursion(),
        "warnings that are errors": sum(each[0] == "error" for each in warnings.filters),
        "where output goes": (id(sys.stdout), id(sys.stderr)),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the transforms of functions": torch._C._functorch.maybe_current_level(),
        "how late its timers may be": ctypes.CDLL(None).prctl(_GET_TIMER_SLACK) if _LINUX else 0,
        "autograd's search for anomalies": torch.is_anomaly_enabled(),
        "autograd's hooks for saved tensors": modes._top_saved_tensors_default_hooks(True),
    }


def handlers() -> dict[int, int]:
    """The address of what each signal calls, also where C set it; 0 is the default, 1 nothing."""
    found, action = {}, _Action()
    for number in _SIGNALS:
        if _sigaction(number, None, ctypes.byref(action)) == 0:
            found[number] = action.handler or 0
    return found


def of_a_package(handler: int) -> bool:
    """Whether it lies in a library that comes with torch or Triton.

    LLVM catches a dozen signals when Triton first compiles, the profiler one when it first records.
    """
    symbol = _Symbol()
    known = _dladdr(handler, ctypes.byref(symbol)) and symbol.file
    return bool(known) and os.path.realpath(os.fsdecode(symbol.file)).startswith(PACKAGES)


def _status() -> dict[str, str]:
    """What the kernel says of this process; nothing where there is no /proc."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return {f"the process's {name}": found[name].strip() for name in _STATUS if name in found}
    return {}


def _recursion() -> int:
    """The limit; torch's compiler raises a lower one to 2000, which harms nobody."""
    limit = sys.getrecursionlimit()
    return _USUAL_RECURSION if limit == _TORCHS_RECURSION else limit


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
