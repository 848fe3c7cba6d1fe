"""A declarative, YAML-driven experiment runner for GPU kernels.

`run([...])` takes the overrides of the command line and gives its table; `benchmark(fn, *inputs)`
times any callable with the same measuring core; `load(op, variant)` gives a variant as a callable.
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
