"""What the user asked for, held against the op: plain data becomes `model.Settings`.

Every fault of a run is collected before anything is refused.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from runner.config import devices, forms, input_files
from runner.config import workload as workload_choice
from runner.config.forms import SEED_BELOW
from runner.config.names import Names
from runner.config.origin import Origin
from runner.config.sentences import refuse
from runner.model import Limits, Measure, Op, Refusal, Settings, Target
from runner.op import declaration, shapes
from runner.schema import MeasureNode
from runner.typed import defaults

NO_OP = Op("", "", (), {}, {}, {}, (), (), Target("", ""), {}, (), {}, "", "", {})


def settings(raw: dict[str, Any], origin: Origin) -> Settings:
    """The validated run. Raises Refusal with one line for each thing that is wrong."""
    return _Chooser(raw, origin).settings()


class _Chooser:
    def __init__(self, raw: dict[str, Any], origin: Origin):
        self.raw = dict(raw)
        self.origin = origin
        self.faults: list[str] = []

    def settings(self) -> Settings:
        if isinstance(self.raw.pop("experiment", None), dict):
            place = f"experiment={self.origin.experiment}"
            self.faults.append(f"{place}: its file needs `# @package _global_` as its first line")
        self.faults += forms.take_out_faults(self.raw)
        if misplaced := list(workload_choice.misplaced(self.raw)):
            refuse([*self.faults, *misplaced])
        if self.raw["mode"] == "ceilings":
            return self._of_the_device()
        if self.raw["mode"] in ("profile", "plan") and self.raw["workload"]["target"]:
            return self._of_a_workload()
        op = self._op()
        if op is None:
            refuse(self.faults)
        return self._settings(op)

    def _of_the_device(self) -> Settings:
        """A run that needs no op."""
        device = self._try(self.origin.resolve, self.raw["device"]) or "cpu"
        output = self._output()
        refuse(self.faults)
        return self._without_op(device, output)

    def _of_a_workload(self) -> Settings:
        device = self._try(self.origin.resolve, self.raw["device"]) or "cpu"
        output = self._output()
        workload = workload_choice.chosen(self.raw, device, self.origin, self.faults)
        refuse(self.faults)
        seed = self.raw["seed"] if self.raw["seed"] is not None else secrets.randbelow(2**32)
        text = _yaml(self.raw | {"device": device, "seed": seed, "output": output})
        return dataclasses.replace(
            self._without_op(device, output),
            workload=workload,
            seed=seed,
            resolved_yaml=text,
            before=self.raw["before"],
            profiler=self.raw["profiler"],
        )

    def _without_op(self, device: str, output: str) -> Settings:
        return Settings(
            op=NO_OP,
            device=device,
            mode=self.raw["mode"],
            check=self.raw["check"],
            measure=_measure(self.raw),
            limits=_limits(self.raw),
            experiment=self.origin.experiment,
            output=output,
            command=self.origin.command,
            resolved_yaml="",
            **dict.fromkeys(("variants", "named", "dtypes", "directions", "layouts", "shapes", "smoke"), ()),
            attrs={},
            files={},
            seed=0,
        )

    def _settings(self, op: Op) -> Settings:
        raw, origin = self.raw, self.origin
        device = self._try(self.origin.resolve, raw["device"]) or "cpu"
        if raw["baseline"] is not None:
            Names(raw, op, self.faults).each("baseline", [raw["baseline"]], op.variants, "variant")
            op = dataclasses.replace(op, baseline=raw["baseline"])
        names = Names(raw, op, self.faults)
        self.faults += _timing_faults(raw, device)
        variants, named = names.variants()
        files = input_files.paths(raw, op, self.faults)
        headers = input_files.headers(files, self.faults)
        raw["shape"] = input_files.dims(raw, op, headers, self.faults)
        chosen = {
            "variants": variants,
            "named": named,
            "dtypes": names.of("dtype", op.dtypes, op.dtypes[:1]),
            "directions": names.directions(),
            "attrs": names.attrs(),
            "layouts": names.layouts(),
            "shapes": shapes.chosen(raw, op, device, self.faults),
            "files": files,
            "output": self._output(),
        }
        input_files.fit(op, headers, chosen, self.faults)
        if raw["check"] == "sanitizer":
            self._try(devices.sanitizer)
        refuse(self.faults)
        seed = raw["seed"] if raw["seed"] is not None else secrets.randbelow(SEED_BELOW)
        return Settings(
            op=op,
            smoke=op.shapes["smoke"],
            device=device,
            mode=raw["mode"],
            check=raw["check"],
            measure=_measure(raw),
            limits=_limits(raw),
            seed=seed,
            experiment=origin.experiment,
            command=origin.command,
            resolved_yaml=_yaml(raw | {"device": device, "seed": seed, "output": chosen["output"]}),
            profiler=raw["profiler"],
            why=raw["why"],
            op_file=origin.op_file,
            config_files=origin.files,
            search=tuple(map(str, origin.search.folders)),
            **chosen,
        )

    def _op(self) -> Op | None:
        """The op; one that the jobs of a sweep share is built once."""
        raw = self.raw.get("op")
        if not isinstance(raw, dict):
            self.faults.append(_no_op(raw, self.origin))
            return None
        place = self.origin.op_file or "op"
        content = (place, repr(raw))
        if content not in self.origin.built:
            op, faults = declaration.build(raw, self.origin.search, self.origin.op_file)
            self.origin.built[content] = (op, faults)
        op, faults = self.origin.built[content]
        for fault in faults:
            key = f"op.{fault.partition(': ')[0]}"
            self.faults.append(f"{self.origin.typed(key) or place}: {fault}")
        return op

    def _try(self, function: Callable, *arguments: Any) -> Any:
        """The function's value, or None and its sentence among the faults."""
        try:
            return function(*arguments)
        except Refusal as refusal:
            self.faults.append(str(refusal))
            return None

    def _output(self) -> str:
        if not self.raw["output"].strip():
            self.faults.append("output=: name a folder")
            return ""
        folder = Path(self.raw["output"]).expanduser().absolute()
        if self.raw["mode"] not in ("plan", "list", "ceilings"):
            self._try(check_writable, folder)
        return str(folder)


def _no_op(raw: Any, origin: Origin) -> str:
    if origin.op_file:
        return f"{origin.op_file}: expected a mapping of keys such as name and dims"
    if raw is not None:
        return f"op: {raw!r} is no op; an experiment says so by `defaults: [override /op: {raw}]` at its top"
    return f"op: missing; type op=<name>, of {', '.join(origin.ops)} (mode=list describes them)"


def check_writable(folder: Path) -> None:
    """Raises Refusal when nothing can be made under a folder; leaves nothing behind."""
    there = folder
    while not there.exists() and not there.is_symlink():
        there = there.parent
    if not there.is_dir():
        raise Refusal(f"output={folder}: {there} is not a folder")
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".runner-", dir=there))
    except OSError as error:
        raise Refusal(f"output={folder}: cannot write in {there} ({error.strerror})") from error


def _limits(raw: dict[str, Any]) -> Limits:
    return Limits(**{name: value and float(value) for name, value in raw["limits"].items()})


def _measure(raw: dict[str, Any]) -> Measure:
    node = {**defaults(MeasureNode), **raw["measure"], "timing": raw["timing"]}
    trials = node["trials"] if raw["trials"] is None else raw["trials"]
    return Measure(**node | {"trials": 0 if trials == "auto" else trials})


def _timing_faults(raw: dict[str, Any], device: str) -> Iterable[str]:
    timing = raw["timing"]
    if raw["profiler"] == "ncu" and device == "cpu":
        yield "profiler=ncu: it looks into a GPU's kernels, and this run is on the CPU"
    if timing == "graph" and device == "cpu":
        yield "timing=graph: CUDA graphs need a GPU, and this run is on the CPU"
    if timing in ("graph", "burst") and "backward" in str(raw["direction"]):
        yield f"timing={timing}: it repeats a call, but a gradient needs its forward first; use cold or warm"


def _yaml(raw: dict[str, Any]) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(raw, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110)
