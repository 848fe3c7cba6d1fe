"""The process's global state, so that no variant is timed or checked in a world another one changed."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from runner.process import lifetimes
from runner.worker import options, surroundings
from runner.worker.functions import Functions, said, taken
from runner.worker.modules import Modules

_SIGNALS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_HELPERS = (
    "torch/_inductor/compile_worker",
    "multiprocessing.resource_tracker",
)  # torch's own, and they stay
_TINY, _HALF_ULP = sys.float_info.min, 2.0**-54
_INSTALLED = (sys.prefix, sys.base_prefix, *surroundings.PACKAGES, "<")
# float32 matmul precision says nothing of these
_PARTS = (torch.backends.cudnn.rnn, torch.backends.mkldnn.conv, torch.backends.mkldnn.rnn)
_CUDA = torch.backends.cuda
_ATTENTION = (_CUDA.flash_sdp_enabled, _CUDA.mem_efficient_sdp_enabled, _CUDA.math_sdp_enabled)
_ATTENTION += (_CUDA.cudnn_sdp_enabled,)
_PERSISTING_L2 = 6  # cuda.h: CU_LIMIT_PERSISTING_L2_CACHE_SIZE


class State:
    """What was so when it was made; `changes` says what is not so any more.

    `objects` are the harness's own: nobody may give them other functions or numbers.
    """

    def __init__(self, objects: Sequence[Any] = ()) -> None:
        self._settings, self._variables = _settings(), options.variables()
        self._functions, self._handlers = Functions(), surroundings.handlers()
        self._modules = Modules(_INSTALLED)
        self._objects = [(one, _fixed(one)) for one in objects]
        self._held: list[tuple[Any, dict[str, Any]]] = []
        self._threads = set(sys._current_frames())
        self._children = lifetimes.children()
        self._operators = _operators()

    def hold(self, one: Any) -> None:
        """One more object of the harness's own, until `release`: how a variant is called, say."""
        self._held.append((one, _fixed(one)))

    def release(self) -> None:
        """What was held is no longer needed."""
        self._held.clear()

    def adopt(self) -> str:
        """Take in the modules that a build brought: names what in them is not as their files have it."""
        return _listed(self._modules.adopt())

    def changes(self, operators: bool = False, own: str = "") -> str:
        """Half a sentence naming what differs; empty when nothing does.

        `operators`: whether those of torch are looked at as well, and what is set in compilers, which takes
        50 ms. `own`: the variant's module.
        """
        now = _settings()
        moved = {name: old for name, old in self._settings.items() if now[name] != old}
        found = [f"{name} ({said(old)} before, {said(now[name])} now)" for name, old in moved.items()]
        found += [f"the environment variable {name}" for name in self._varied()]
        found += [f"what signal {number} calls" for number in self._caught()]
        found += self._functions.changes() + self._modules.changes(own)
        found += [
            f"the runner's {type(one).__name__}"
            for one, fixed in (*self._objects, *self._held)
            if _fixed(one) != fixed
        ]
        found += [f"the thread {name}, which still runs" for name in self._running()]
        found += [f"the process {name}, which still runs" for name in self._left()]
        if operators:
            found += [f"the operator {name} (other kernels are behind it)" for name in self._replaced()]
            found += options.of_compilers()
        return _listed(found)

    def _replaced(self) -> list[str]:
        """Operators behind which there are other kernels. Most are as they were to the letter."""
        now = _operators()
        moved = [(name, old) for name, old in self._operators.items() if now.get(name) != old]
        return [name for name, old in moved if _kernels(now.get(name, "")) != _kernels(old)]

    def _varied(self) -> list[str]:
        """Variables that are no longer what they were, and new ones that others heed."""
        now = options.variables()
        names = [name for name, text in self._variables.items() if now.get(name) != text]
        return names + [name for name in now.keys() - self._variables.keys() if options.heeded(name)]

    def _caught(self) -> list[int]:
        """Signals that call something else, which is none of torch's or Triton's."""
        now = surroundings.handlers()
        moved = [(number, now[number]) for number, old in self._handlers.items() if now[number] != old]
        return [number for number, handler in moved if not surroundings.of_a_package(handler)]

    def _left(self) -> list[str]:
        """Children that nobody but a variant started."""
        new = lifetimes.children() - self._children
        commands = {pid: lifetimes.command(pid) for pid in new}
        return [f"{pid} ({words[:40]})" for pid, words in commands.items() if words and not _helps(words)]

    def _running(self) -> list[str]:
        """Threads that run code which is in no installed package: nobody but a variant started those.

        `threading` knows only those that were started through it.
        """
        frames = sys._current_frames()
        new = {i: f for i, f in frames.items() if i not in self._threads and _foreign(f)}
        names = {thread.ident: thread.name for thread in threading.enumerate()} if new else {}
        return [names.get(ident) or _begun(frame) for ident, frame in new.items()]


def _listed(found: list[str]) -> str:
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def _foreign(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_INSTALLED):
            return True
        frame = frame.f_back
    return False


def _begun(frame: types.FrameType) -> str:
    """The function that a thread runs, of the variant's where that can be told."""
    while frame.f_code.co_filename.startswith(_INSTALLED) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_qualname


def _helps(command: str) -> bool:
    return any(helper in command for helper in _HELPERS)


def _operators() -> dict[str, str]:
    """What is registered for each of torch's operators."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return {name: torch._C._dispatch_dump(name) for name in names}


def _kernels(dump: str) -> str:
    """Without meta kernels: those compute nothing, and come late."""
    return "\n".join(line for line in dump.splitlines() if not line.startswith("Meta"))


def _fixed(one: Any) -> dict[str, Any]:
    """What an object has; of a tensor, such as a clock flushes caches with, where and how large it is."""
    return {name: _placed(value) for name, value in vars(one).items()}


def _placed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return id(value), value.data_ptr(), value.numel()
    if isinstance(value, types.FunctionType):
        return id(value), id(value.__code__), *map(id, taken(value))
    return value if isinstance(value, (int, float, str)) else id(value)


def _settings() -> dict[str, Any]:
    return {
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "the number of threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": _readable(torch.get_float32_matmul_precision),
        "TF32 in cuDNN": _readable(lambda: torch.backends.cudnn.allow_tf32),
        "reduced precision in float16 products": _matmul("fp16"),
        "reduced precision in bfloat16 products": _matmul("bf16"),
        "cuDNN's benchmarks": (torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit),
        "sums in float16 in products": _CUDA.matmul.allow_fp16_accumulation,
        "the precision of parts": tuple(part.fp32_precision for part in _PARTS),
        "the library that products take": torch._C._get_blas_preferred_backend(),
        "the library that decompositions take": torch._C._get_linalg_preferred_backend(),
        "the forms of attention": tuple(allowed() for allowed in _ATTENTION),
        "what memory holds at first": torch.utils.deterministic.fill_uninitialized_memory,
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
        **surroundings.settings(),
        **_cuda(),
    }


def _readable(setting: Callable[[], Any]) -> Any:
    """torch refuses to read a setting by its old name when a new one differs for a part of it."""
    try:
        return setting()
    except RuntimeError:
        return "mixed"


def _matmul(kind: str) -> Any:
    return getattr(_CUDA.matmul, f"allow_{kind}_reduced_precision_reduction")


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
