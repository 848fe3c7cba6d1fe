"""A declarative, YAML-driven experiment runner for GPU kernels.

`run([...])` takes the overrides of the command line and gives its table; `benchmark(fn, *inputs)`
times any callable with the same measuring core; `load(op, variant)` gives a variant as a callable.

How it is laid out: what stands here imports only what stands above it.

    files model schema typed   what all share; `schema` is the one list of keys, `model` what flows from it
    process     processes and the pipes between them: supervisor, locks, interrupts
    op          an op as its YAML file declares it
    config      YAML files and command-line words -> `model.Settings`; the only one that knows OmegaConf
    plan        settings -> every case and every row
    build       a variant -> a callable; a case -> its inputs
    measure     clocks, turns, when to stop, what samples mean, what the device can do
    check       whether outputs are right; the judge's process, `python -m runner.check`
    trace       what a profiler's trace says
    profile     passes under a profiler, their tables, the triage of a step
    worker      the process that touches variants, `python -m runner.worker`
    record      a run's folder: written as rows become known, read again
    report      tables, pages and pictures from what was recorded, `python -m runner.report`
    compare     two runs against each other, `python -m runner.compare`
    collect     several runs as one table, `python -m runner.collect`
    parent      one case or step at a time, through the worker and the judge
    driver      one run from its settings to its folder
    command     what a command line asks for: help, lists, jobs, to resume, to run elsewhere
    cli api     the command line, and the runner from Python

The parent of a run never imports torch; `build`, `measure`, `check`, `profile` and `worker` hold what does.
"""

from __future__ import annotations

from typing import Any

__all__ = ["benchmark", "load", "run"]


def __getattr__(name: str) -> Any:
    """Imported when first asked for: the parent of a run must not import torch."""
    if name == "benchmark":
        from runner.measure.turns import benchmark

        return benchmark
    if name in ("run", "load"):
        from runner import api

        return getattr(api, name)
    raise AttributeError(f"module 'runner' has no attribute {name!r}")
