"""A whole step, the user's or our own, made and profiled. Runs in the worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from runner.build.variant import build
from runner.model import Refusal, Variant, Workload
from runner.profile.profiler import Profiler, sync_witness, wall

_WARM_STEPS = 3
_LOOP_STEPS = 3


def profile_workload(workload: Workload, device: str, seed: int, folder: Path) -> dict[str, Any]:
    """The traces of a few steps in `folder`; unprofiled wall times, and where torch says that it waited.

    Raises Refusal where the target does not make a step.
    """
    step = make(workload, device, seed, folder)
    profiler = Profiler(device, folder)
    for _ in range(_WARM_STEPS):
        step()
    facts = wall(step, profiler.synchronize, workload.timed_steps)
    profiler.plain(lambda: _plain(profiler, step, workload.steps))
    with sync_witness(device) as witness:
        profiler.detail(lambda: _detail(profiler, step))
    allows_tf32 = device != "cpu" and torch.backends.cuda.matmul.fp32_precision == "tf32"
    return {"wall": facts, "witness": witness, "tf32": allows_tf32}


def _plain(profiler: Profiler, step: Callable[[], Any], count: int) -> None:
    """Steps alone, for the times of what they do; then back to back, for who waits for whom."""
    for number in range(count):
        with profiler.window(f"step {number}"):
            step()
        profiler.synchronize()
    with profiler.window("loop"):
        for _ in range(_LOOP_STEPS):
            step()


def _detail(profiler: Profiler, step: Callable[[], Any]) -> None:
    with profiler.lines("step 0"):
        step()


def make(workload: Workload, device: str, seed: int, keep: Path) -> Callable[[], Any]:
    """The step of a workload: its target called with the arguments that it takes."""
    target = build(Variant("workload", workload.target), device, keep).fn
    forms = {form.argument: _callable(form.variant, form.params, device, keep) for form in workload.forms}
    offered = {"device": device, "seed": seed, "compile": workload.compile}
    wanted = _accepted(target, workload.target.text, workload.args | forms, offered)
    step = target(**wanted)
    if not callable(step):
        raise Refusal(
            f"workload.target={workload.target.text}: returned a {type(step).__name__}, not a callable step"
        )
    return torch.compile(step) if workload.compile and "compile" not in wanted else step


def _callable(variant: Variant, params: Mapping[str, Any], device: str, keep: Path) -> Callable[..., Any]:
    keep.mkdir(parents=True, exist_ok=True)
    fixed = {**variant.kwargs, **params}
    fn = build(variant, device, keep).fn
    return functools.partial(fn, **fixed) if fixed else fn


def _accepted(
    target: Callable, text: str, given: Mapping[str, Any], offered: Mapping[str, Any]
) -> dict[str, Any]:
    """`given`, and of `offered` what the target has a name for. Raises Refusal where they do not fit."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return dict(given)
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters)
    names = {each.name for each in parameters}
    unknown = [name for name in given if name not in names and not open_ended]
    required = [each.name for each in parameters if each.default is each.empty and each.kind not in _VARIADIC]
    missing = [name for name in required if name not in given and name not in offered]
    if unknown or missing:
        raise Refusal(_misfit(text, unknown, missing, sorted(names)))
    return {**{name: value for name, value in offered.items() if name in names}, **given}


_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _misfit(text: str, unknown: Sequence[str], missing: Sequence[str], names: Sequence[str]) -> str:
    takes = f"it takes {', '.join(names) or 'nothing'}"
    if unknown:
        return f"workload.target={text}: no argument {', '.join(unknown)}; {takes}"
    return f"workload.target={text}: needs {', '.join(missing)}: set workload.args.{missing[0]}=; {takes}"
