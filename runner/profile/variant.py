"""Profiles one proven variant: the call that is timed, under torch.profiler. Runs in the worker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from runner.measure.samples import Trial
from runner.measure.turns import clock_for
from runner.profile.profiler import Profiler, sync_witness, wall

COLD_CALLS = 5
LOOP_CALLS = 20
_LOOP_S = 0.2
LOOP = "loop"


def cold(number: int) -> str:
    """The window of a call that finds the cache empty, as a timed one does."""
    return f"call {number}"


def profile_variant(clock: Any, device: str, trial: Trial, folder: Path) -> dict[str, Any]:
    """Two traces in `folder`; the stacks at which torch says that it waited, and unprofiled wall times.

    Calls one by one after a flush, as they are timed, and a loop of calls back to back, as they are used. A
    gradient has no loop: its forward would be in it.
    """
    clock = clock or clock_for(device)
    profiler = Profiler(device, folder)
    for _ in range(2):  # warm: nothing is compiled or loaded in a trace
        trial.prepare()
        trial.call()
    profiler.plain(lambda: _plain(profiler, clock, trial))
    with sync_witness(device) as witness:
        profiler.detail(lambda: _detail(profiler, clock, trial))
    facts = wall(trial.call, profiler.synchronize) if trial.repeatable else {}
    return {"witness": witness, "wall": facts}


def _plain(profiler: Profiler, clock: Any, trial: Trial) -> None:
    for number in range(COLD_CALLS):
        trial.prepare()
        clock.flush()
        profiler.synchronize()
        with profiler.window(cold(number)):
            output = trial.call()
        profiler.synchronize()
        del output  # freed before the next call allocates
    if trial.repeatable:
        calls = _loop_calls(profiler, trial)
        with profiler.window(LOOP):
            for _ in range(calls):
                trial.call()


def _loop_calls(profiler: Profiler, trial: Trial) -> int:
    """Fewer of a long call."""
    start = time.perf_counter()
    trial.call()
    profiler.synchronize()
    return max(2, min(LOOP_CALLS, int(_LOOP_S / (time.perf_counter() - start))))


def _detail(profiler: Profiler, clock: Any, trial: Trial) -> None:
    """A gradient's operators have the lines of the forward that made them: it is marked as well."""
    with profiler.lines("before"):
        trial.prepare()
    clock.flush()
    profiler.synchronize()
    with profiler.lines(cold(0)):
        trial.call()
