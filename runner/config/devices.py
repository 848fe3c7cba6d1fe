"""What is there, found without torch: the device a run takes, what torch can use, the sanitizer."""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import os
import re
import shutil
from pathlib import Path

from runner.model import Refusal
from runner.typed import nearest

SANITIZER = "compute-sanitizer"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, also when CUDA_VISIBLE_DEVICES hides them all


ANY = "cuda:any"  # the first that no other run has taken


def resolve(text: str) -> str:
    """`auto, cpu, cuda, cuda:N, cuda:any` -> "cpu", "cuda:N" or `ANY`. Raises Refusal when there is none."""
    if text == "auto":
        return "cpu" if obstacle() else "cuda:0"
    device = named(text)
    if device == "cpu":
        return device
    why = obstacle()
    if why:
        raise Refusal(f"device={text}: {why}; device=cpu runs without a GPU")
    count = driver()[0]
    if device != ANY and int(device.removeprefix("cuda:")) >= count:
        raise Refusal(f"device={text}: there {'is' if count == 1 else 'are'} only {_list(count)}")
    return device


def named(text: str) -> str:
    """The device that a text names, there or not: for a job that runs on another machine. `auto` is a GPU."""
    if text in ("cpu", ANY):
        return text
    if text == "auto":
        return "cuda:0"
    match = re.fullmatch(r"cuda(?::(\d+))?", text)
    if not match:
        raise Refusal(f"device={text}: not a device{nearest(text, ('auto', 'cpu', 'cuda', 'cuda:0', ANY))}")
    return f"cuda:{int(match[1] or 0)}"


def keys() -> dict[str, str]:
    """The visible GPUs, each by the name of the lock that reserves it for one run on this host."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in shown.split(",")] if shown else []
    places = [names[i] if i < len(names) else str(i) for i in range(driver()[0])]
    return {f"run-on-gpu-{place}": f"cuda:{i}" for i, place in enumerate(places)}


def obstacle() -> str:
    """Why CUDA cannot be used here; empty when it can."""
    count, why = driver()
    return why if not count else torch_obstacle()


def _list(count: int) -> str:
    return "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"


@functools.cache
def driver() -> tuple[int, str]:
    """(number of visible GPUs, why there is none), from the CUDA driver library."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no CUDA driver here (libcuda.so.1 is not found)"
    code, count = library.cuInit(0), ctypes.c_int(0)
    if code == 0:
        code = library.cuDeviceGetCount(ctypes.byref(count))
    if code not in (0, NO_DEVICE):
        return 0, f"the CUDA driver does not start (error {code})"
    return count.value, "" if count.value else "the CUDA driver sees no GPU"


@functools.cache
def torch_obstacle() -> str:
    """Why the installed torch cannot use CUDA; empty when it can. Reads its version.py."""
    spec = importlib.machinery.PathFinder.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return "torch is not installed"
    version = Path(spec.submodule_search_locations[0]) / "version.py"
    text = version.read_text(encoding="utf-8") if version.is_file() else ""
    found = re.search(r"^cuda\b[^=\n]*=\s*(.+?)\s*$", text, re.MULTILINE)
    if found and found[1] == "None":
        return "the installed torch is built for the CPU only"
    return ""


def sanitizer() -> str:
    """The path of NVIDIA's sanitizer. Raises Refusal, one sentence, where it is not installed."""
    path = shutil.which(SANITIZER)
    if path is None:
        raise Refusal(
            f"check=sanitizer: {SANITIZER} is not on the PATH; it comes with the CUDA toolkit, "
            "in its bin folder (or set check=standard)"
        )
    return path
