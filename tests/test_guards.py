"""What a variant does beside its output is found, and who does nothing is left alone."""

import copy
import ctypes
import gc
import pickle
import signal
import threading
import time
import weakref
from types import SimpleNamespace

import pytest
import torch

from runner.check import guards
from runner.config.compose import compose
from runner.measure import samples, seen
from runner.worker import session, state, surroundings


def test_a_write_next_to_an_output_breaks_the_fence():
    for size in (1 << 16, 3000):
        fence = guards.Fence([size], "cpu")
        assert not fence.broken()
        ctypes.memset(fence._posts[1].data_ptr(), 0, 1)
        assert fence.broken()


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 512, 5 * 205 * 4, (1 << 20) - 100, 1 << 20, 3 << 20, 4096 * 3000 * 4])
def test_on_a_gpu_an_output_lies_within_the_fence(size):
    free = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(3)]
    del free  # blocks that an output could get, and that nobody would guard
    fence = guards.Fence([size], "cuda:0")
    out = torch.empty(size, dtype=torch.uint8, device="cuda")
    assert not fence.broken()
    end = out.data_ptr() + -(-size // 512) * 512
    assert end in {post.data_ptr() for post in fence._posts}
    write = ctypes.CDLL("libcuda.so.1").cuMemsetD8_v2
    assert write(ctypes.c_uint64(end), ctypes.c_ubyte(0), ctypes.c_size_t(1)) == 0
    assert fence.broken()


KEPT = []


def test_what_is_kept_after_each_call_is_said_with_the_amount():
    x = torch.randn(1 << 20)
    assert guards.kept(lambda: x * 2, "cpu") == ""
    assert guards.kept(lambda: KEPT.append(x * 2), "cpu") == "1 more tensors after each call"
    once = []
    assert guards.kept(lambda: once or once.append(x * 2), "cpu") == ""
    KEPT.clear()


def test_memory_kept_outside_of_tensors_is_seen():
    def keeps():
        KEPT.append(ctypes.create_string_buffer(4 << 20))
        ctypes.memset(KEPT[-1], 1, 4 << 20)

    assert "MB more after each call" in guards.kept(keeps, "cpu")
    KEPT.clear()


def test_who_claims_a_kernel_and_calls_the_built_in_is_named():
    op = compose(["op=gelu", "device=cpu"]).op
    x = torch.randn(8, 8)
    own, builtin = op.variants["cpp"], [op.variants["builtin"].target]
    assert guards.borrowed(own, builtin, lambda: torch.nn.functional.gelu(x)) == "aten::gelu"
    assert guards.borrowed(own, builtin, lambda: torch.ops.aten.gelu.default(x)) == "aten::gelu"
    assert guards.borrowed(own, builtin, lambda: torch.empty_like(x).copy_(x.contiguous())) == ""
    assert guards.borrowed(op.variants["naive"], builtin, lambda: torch.nn.functional.gelu(x)) == ""


def _change_code():
    seen.faster_when_repeated.__code__ = (lambda fresh_us, repeated_us: "").__code__


_CAUGHT = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)


def _set_handler(number, handler):
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal(number, handler)


def _in_torch():
    """The address of a function of torch's library; nobody calls it."""
    function = ctypes.CDLL(torch._C.__file__).PyInit__C
    return ctypes.cast(function, ctypes.c_void_p)


def _ask_for_tf32():
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def _set_a_compiler():
    from torch._inductor import config

    config.max_autotune = not config.max_autotune


def _replace_output():
    import io
    import sys

    sys.stdout = io.StringIO()


CHANGES = {
    "a variable of C's": (
        lambda: ctypes.CDLL(None).setenv(b"OMP_SCHEDULE", b"static,1", 1),
        "the environment variable OMP_SCHEDULE (C's)",
    ),
    "a variable of C's alone": (
        lambda: ctypes.CDLL(None).unsetenv(b"PATH"),
        "the environment variable PATH (C's)",
    ),
    "a variable of Triton's": (
        lambda: __import__("os").environ.update(TRITON_DEFAULT_FP_FUSION="0"),
        "the environment variable TRITON_DEFAULT_FP_FUSION",
    ),
    "the locale": (lambda: ctypes.CDLL(None).setlocale(1, b"C.UTF-8"), "the locale"),
    "how deep calls go": (
        lambda: __import__("sys").setrecursionlimit(400),
        "the recursion limit (1000 before",
    ),
    "warnings": (lambda: __import__("warnings").simplefilter("error"), "warnings that are errors (0 before"),
    "standard output": (_replace_output, "where output goes"),
    "a transform that goes on": (
        lambda: torch._C._functorch._vmap_increment_nesting(1, "error"),
        "the transforms of functions",
    ),
    "late timers": (lambda: ctypes.CDLL(None).prctl(29, 5_000_000), "how late its timers may be"),
    "torch's compiler": (_set_a_compiler, "torch._inductor.config.max_autotune"),
    "a signal that C catches": (lambda: _set_handler(40, _CAUGHT), "what signal 40 calls"),
    "one that it ignores": (lambda: _set_handler(40, 1), "what signal 40 calls"),
    "one that is blocked": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [40]), "signals that it blocks"),
    "a part of the precision": (_ask_for_tf32, "float32 matmul precision (highest before, mixed now)"),
    "a function of the runner": (
        lambda: setattr(seen, "from_memory", len),
        "runner.measure.seen.from_memory (replaced)",
    ),
    "a method of the runner": (
        lambda: setattr(guards.Fence, "broken", lambda self: False),
        "Fence.broken (replaced)",
    ),
    "the code of a function": (_change_code, "runner.measure.seen.faster_when_repeated (replaced)"),
    "a method over a tensor's own": (
        lambda: setattr(torch.Tensor, "copy_", len),
        "Tensor.copy_ (replaced: it",
    ),
    "random numbers": (lambda: torch.rand(1), "the random numbers' state"),
    "tracing": (lambda: __import__("sys").setprofile(lambda *a: None), "the trace and profile functions"),
    "garbage": (lambda: __import__("gc").disable(), "the garbage collector"),
    "the default dtype": (lambda: torch.set_default_dtype(torch.float64), "the default dtype"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_world_is_seen(name):
    """In a process of its own: it is not put right again."""
    import subprocess
    import sys

    code = f"""
from tests.test_guards import CHANGES
from runner.worker.state import State
before = State()
assert before.changes() == "", before.changes()
change, words = CHANGES[{name!r}]
change()
assert words in before.changes(operators=True), before.changes()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_flags_that_choose_how_torch_computes_are_seen(monkeypatch):
    backends, world = torch.backends, state.State()
    monkeypatch.setattr(backends.mkldnn.conv, "fp32_precision", "bf16")
    monkeypatch.setattr(backends.cuda.matmul, "allow_fp16_accumulation", True)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    backends.cuda.enable_flash_sdp(False)
    try:
        changes = world.changes()
    finally:
        backends.cuda.enable_flash_sdp(True)
    for words in ("of parts", "sums in float16 in products", "the forms of attention", "what memory holds"):
        assert words in changes


def test_copying_and_pickling_tensors_is_no_change():
    if "__slotnames__" in vars(torch.Tensor):  # a test before this one copied some
        del torch.Tensor.__slotnames__
    world = state.State()
    copy.copy(torch.zeros(1))
    pickle.dumps(torch.zeros(1))
    assert "__slotnames__" in vars(torch.Tensor)
    assert world.changes() == ""


def test_a_handler_of_a_library_that_comes_with_torch_is_no_change():
    """As LLVM's are when Triton first compiles, and the profiler's."""
    world = state.State()
    number = int(signal.SIGUSR2)
    try:
        _set_handler(number, _in_torch())
        assert world.changes() == ""
    finally:
        _set_handler(number, 0)


def test_a_kernel_that_says_little_of_a_process_is_lived_with(monkeypatch):
    monkeypatch.setattr(surroundings.Path, "read_text", lambda path: "Name:\tpython\nSeccomp:\t0\n")
    assert surroundings._status() == {"the process's Seccomp": "0"}


def test_a_thread_that_goes_on_is_seen_and_one_of_an_installed_package_is_not():
    world = state.State()
    stop = threading.Event()

    def works():
        while not stop.is_set():
            time.sleep(0.01)

    thread = threading.Thread(target=works, name="later")
    thread.start()
    assert "the thread later, which still runs" in world.changes()
    stop.set()
    thread.join()
    idle = threading.Thread(target=threading.Event().wait, args=(1,))
    idle.start()
    assert world.changes() == ""


def test_a_clock_that_was_given_another_function_is_seen():
    class Clock:
        rate = 1.0

    clock = Clock()
    clock.rate = 2.0
    world = state.State((clock,))
    assert world.changes() == ""
    clock.between = lambda start, end: 0.0
    assert "the runner's Clock" in world.changes()


def test_another_variants_call_that_was_changed_is_seen():
    def calls(function):
        return samples.Trial(lambda: function(1))

    trial, world = calls(abs), state.State()
    world.hold(trial)
    assert world.changes() == ""
    trial.call.__closure__[0].cell_contents = float
    assert "the runner's Trial" in world.changes()
    trial.call = len
    assert "the runner's Trial" in world.changes()
    world.release()
    assert world.changes() == ""


def test_what_was_frozen_while_a_case_was_open_is_collected_when_it_closes(monkeypatch):
    class Ring:
        pass

    worker = session.Session(SimpleNamespace(emit=None, ask=None))
    gc.unfreeze()  # what a test before this one left so would be let go with the case's
    gc.collect()
    before = gc.get_freeze_count()
    try:
        monkeypatch.setattr(session, "_MANY", 1 << 60)
        worker._settle()
        assert gc.get_freeze_count() == before
        monkeypatch.setattr(session, "_MANY", 0)
        ring = Ring()
        ring.itself, seen = ring, weakref.ref(ring)
        worker._settle()
        assert gc.get_freeze_count() > before and guards._tensors() == 0
        kept = torch.zeros(1)
        assert guards._tensors() == 1  # what comes later is counted as ever
        del ring, kept
        gc.collect()
        assert seen() is not None
        worker._collect()
        assert seen() is None and gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
