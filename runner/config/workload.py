"""The step to be profiled: `workload.*` held against its types and the ops of its forms. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.model import Form, Target, Workload
from runner.op import targets
from runner.schema import WorkloadNode
from runner.typed import conform, fields, nearest

_MOST_STEPS, _MOST_TIMED = 100, 100_000


def misplaced(raw: dict[str, Any]) -> Iterator[str]:
    """Keys that only say something with mode=profile."""
    profiles, steps = raw["mode"] in ("profile", "plan"), bool((raw.get("workload") or {}).get("target"))
    if steps and not profiles:
        yield f"workload: a step is profiled, not timed: add mode=profile (this is mode={raw['mode']})"
    if steps and profiles and raw.get("op") is not None:
        yield "workload: in place of an op: leave op out, or workload"
    if raw["before"] and not (steps and profiles):
        yield "before: compares two profiles of a step: add mode=profile workload=<name>"
    if raw["profiler"] != "torch" and not profiles:
        yield f"profiler={raw['profiler']}: add mode=profile"


def chosen(raw: dict[str, Any], device: str, origin: Any, faults: list[str]) -> Workload | None:
    """The workload, or None with what is wrong with it added to `faults`."""
    node = raw["workload"]
    known = {name: value for name, value in node.items() if name in fields(WorkloadNode)}
    wrong = conform(WorkloadNode, known, "workload")
    if not wrong:
        wrong = [*_unknown(node), *_ranges(raw, node)]
    if wrong:
        faults += wrong
        return None
    target, forms = _target(node["target"], origin, faults), []
    for argument, name in node["forms"].items():
        form = _form(argument, name, node, device, origin, faults)
        forms += [form] if form else []
    sizes = node["sizes"].get(device.partition(":")[0], {})
    name = node["name"] or Path(node["target"].partition(":")[0]).stem
    return Workload(
        name,
        target,
        tuple(forms),
        {**sizes, **node["args"]},
        node["compile"],
        node["steps"],
        node["timed_steps"],
    )


def _unknown(node: dict[str, Any]) -> Iterator[str]:
    names = [*fields(WorkloadNode), *node["forms"]]
    for name in node:
        if name not in names:
            yield f"workload.{name}: unknown key{nearest(name, names)}; an argument is workload.args.{name}"


def _ranges(raw: dict[str, Any], node: dict[str, Any]) -> Iterator[str]:
    if not 1 <= node["steps"] <= _MOST_STEPS:
        yield f"workload.steps={node['steps']}: must be from 1 to {_MOST_STEPS}"
    if not 0 <= node["timed_steps"] <= _MOST_TIMED:
        yield f"workload.timed_steps={node['timed_steps']}: must be from 0 (half a second) to {_MOST_TIMED}"
    if raw["before"] and not Path(raw["before"]).is_dir():
        yield f"before={raw['before']}: there is no such folder"


def _target(text: str, origin: Any, faults: list[str]) -> Target:
    try:
        return targets.find(text, origin.search)
    except targets.NotFound as error:
        faults.append(f"workload.target: {error}")
        return Target(text, "")


def _form(argument: str, name: str, node: dict, device: str, origin: Any, faults: list[str]) -> Form | None:
    op, wrong = origin.op_named(name)
    if op is None or wrong:
        faults += [f"workload.forms.{argument}: {fault}" for fault in wrong]
        return None
    asked = node.get(argument)
    variant = op.variants.get(str(asked))
    if variant is None:
        faults.append(
            f"workload.{argument}={asked}: op {name} has no variant {asked!r}{nearest(asked, op.variants)}"
        )
        return None
    if device == "cpu" and variant.language in ("cuda", "triton"):
        faults.append(f"workload.{argument}={asked}: needs a GPU, and this run is on the CPU")
    params = {key: values[0] for key, values in variant.params.items()}
    return Form(argument, op, variant, params)
