"""What of a configuration can be judged without its op: types, unknown keys, ranges, forbidden keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runner.config import claims
from runner.schema import DEPTHS, MODES, PROFILERS, TIMINGS, Config
from runner.typed import conform, defaults, nearest

SEED_BELOW = 2**63
LEAST = {
    "trials": 1,
    "measure.trials": 1,
    "measure.min_trials": 4,  # fewer say nothing of their spread
    "measure.max_trials": 4,
    "measure.warmup": 0,
    "measure.threads": 0,
}
HIGHEST = {"measure.threads": 1024, "measure.warmup": 10**6}  # OpenMP dies of a million threads
HIGHEST |= dict.fromkeys(("trials", "measure.trials", "measure.min_trials", "measure.max_trials"), 10**9)
LONGEST_S = 1e6  # of a limit, eleven days: a clock counts no longer ones
MOST = {"measure.precision": 1.0, "measure.budget_s": LONGEST_S}  # and above 0


def take_out_faults(raw: dict[str, Any]) -> list[str]:
    """The faults; in `raw` a default takes the place of what is wrong, so that the rest can be judged."""
    instead = defaults(Config) | {"measure": {"warmup": 0, "trials": 1}}
    faults = [f"{place}: `_target_` is not used here; a variant has a `target`" for place in _targets(raw)]
    for key in [key for key in raw if key != "op"]:
        found = _form_faults(key, raw)
        if found:
            faults += found
            raw[key] = instead.get(key)
    return faults


def _form_faults(key: str, raw: dict[str, Any]) -> list[str]:
    value = raw[key]
    if key == "shape" and not isinstance(value, dict):
        example = " ".join(f"shape.{dim}=1024" for dim in _dims(raw) or ["rows", "cols"])
        return [f"shape={value}: give each dim by its name, as in {example}"]
    if key == "shapes" and isinstance(value, list) and (words := [e for e in value if isinstance(e, str)]):
        if any(":" in word for word in words):
            sizes = ", ".join(f"{dim}: 8" for dim in _dims(raw) or ["rows"])
            return [f"shapes: quotes keep the shell from taking it apart: 'shapes=[{{{sizes}}}]'"]
        return [f"shapes: a list holds shapes only; a set is named alone, as in shapes={words[0]}"]
    return conform(Config, {key: value}, "") or _range_faults(key, value)


def _dims(raw: dict[str, Any]) -> list[str]:
    op = raw.get("op")
    dims = op.get("dims") if isinstance(op, dict) else None
    return [str(dim) for dim in dims] if isinstance(dims, list) else []


def mode_faults(mode: str) -> list[str]:
    """Why a mode cannot be had."""
    return [] if mode in MODES else [f"mode={mode}: no such mode{nearest(mode, MODES)}"]


def _range_faults(key: str, value: Any) -> list[str]:
    if value is None:
        return []
    if key == "mode":
        return mode_faults(value)
    if key == "check":
        return [] if value in DEPTHS else [f"check={value}: no such check{nearest(value, DEPTHS)}"]
    if key == "limits":
        given = {name: number for name, number in value.items() if number is not None}
        found = (_above_0_fault(f"limits.{name}", number, LONGEST_S) for name, number in given.items())
        return [fault for fault in found if fault]
    if key == "seed" and not 0 <= value < SEED_BELOW:
        return [f"seed={value}: must be from 0 to 2**63 - 1"]
    if key == "profiler":
        return (
            [] if value in PROFILERS else [f"profiler={value}: no such profiler{nearest(value, PROFILERS)}"]
        )
    if key == "claims":
        return list(claims.faults(value))
    if key == "workload":
        return []  # `config.workload` judges it
    if key == "timing":
        return [] if value in TIMINGS else [f"timing={value}: no such timing{nearest(value, TIMINGS)}"]
    numbers = {f"measure.{name}": n for name, n in value.items()} if key == "measure" else {key: value}
    return [fault for name, n in numbers.items() if (fault := _number_fault(name, n))]


def _number_fault(name: str, number: Any) -> str:
    if name.endswith("trials") and isinstance(number, str):
        return "" if number == "auto" else f"{name}={number}: must be a whole number or auto"
    if name in MOST:
        return _above_0_fault(name, number, MOST[name])
    if name in LEAST and number < LEAST[name]:
        return f"{name}={number}: must be at least {LEAST[name]}"
    high = name in HIGHEST and number > HIGHEST[name]
    return f"{name}={number}: must be at most {HIGHEST[name]}" if high else ""


def _above_0_fault(name: str, number: Any, most: float) -> str:
    """Infinite and undefined numbers are out of the range too."""
    if 0 < number <= most:
        return ""
    if number <= 0:
        return f"{name}={number}: must be above 0"
    return f"{name}={number}: must be a number up to {most:.0f}"


def _targets(raw: Any, where: str = "") -> Iterable[str]:
    """Places of `_target_` keys."""
    children = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in children:
        place = f"{where}.{key}" if where else str(key)
        if key == "_target_":
            yield place
        yield from _targets(value, place)
