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

from runner.config import devices, forms
from runner.config import workload as workload_choice
from runner.config.forms import SEED_BELOW
from runner.config.sentences import refuse
from runner.model import Limits, Measure, Op, Refusal, Settings, Target
from runner.op import arrays, attributes, declaration, shapes
from runner.op.targets import Search
from runner.schema import DIRECTIONS, LAYOUTS, MeasureNode
from runner.typed import defaults, nearest

NOT_RESUMED = "a profile of a step is not carried on; start it again"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a composed configuration came from, for messages and for the record."""

    search: Search
    op_file: str = ""
    ops: tuple[str, ...] = ()  # that there are
    experiment: str = ""
    command: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # absolute paths of what was composed
    built: dict[str, Any] = dataclasses.field(default_factory=dict)  # ops of one sweep, by content
    resolve: Callable[[str], str] = devices.resolve  # which device a text is
    op_named: Callable[[str], tuple[Op | None, list[str]]] = lambda name: (None, [NOT_RESUMED])

    def typed(self, key: str) -> str:
        """The word of the command line that set a key, or what it is below; empty when none did."""
        for word in reversed(self.command):
            own = word.lstrip("+~").partition("=")[0]
            if own and "." in own and (key == own or key.startswith((f"{own}.", f"{own}["))):
                return word
        return ""


def settings(raw: dict[str, Any], origin: Origin) -> Settings:
    """The validated run. Raises Refusal with one line for each thing that is wrong."""
    return _Chooser(raw, origin).settings()


NO_OP = Op("", "", (), {}, {}, {}, (), (), Target("", ""), {}, (), {}, "", "", {})


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
            self._each("baseline", [raw["baseline"]], op.variants, "variant")
            op = dataclasses.replace(op, baseline=raw["baseline"])
        self.faults += _timing_faults(raw, device)
        variants, named = self._variants(op)
        files = self._files(op)
        headers = self._headers(files)
        raw["shape"] = self._dims_of_files(op, headers)
        chosen = {
            "variants": variants,
            "named": named,
            "dtypes": self._names("dtype", op.dtypes, op.dtypes[:1]),
            "directions": self._directions(op),
            "attrs": self._attrs(op),
            "layouts": self._layouts(op),
            "shapes": shapes.chosen(raw, op, device, self.faults),
            "files": files,
            "output": self._output(),
        }
        self._fit(op, headers, chosen)
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

    def _each(self, key: str, names: Iterable[str], known: Iterable[str], noun: str) -> None:
        op = self.raw["op"]["name"]
        for name in names:
            if name not in known:
                mark = "." if key in ("attrs", "inputs") else "="
                self.faults.append(f"{key}{mark}{name}: op {op} has no {noun} {name!r}{nearest(name, known)}")

    def _listed(self, key: str) -> list[str]:
        """A name or a list of names; an empty list is a fault."""
        value = self.raw[key]
        names = [value] if isinstance(value, str) else list(value)
        if not names:
            self.faults.append(f"{key}=[]: an empty list; name at least one, or leave {key} out")
        return names

    def _names(self, key: str, known: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
        """What was named of `known`, in the order it was named; `all` takes each."""
        if self.raw[key] is None:
            return default
        names = self._listed(key)
        self._each(key, [name for name in names if name != "all"], known, key)
        return _unique(each for name in names for each in (known if name == "all" else (name,)))

    def _directions(self, op: Op) -> tuple[str, ...]:
        ways = tuple(way for way in DIRECTIONS if way in op.cost and (way == "forward" or op.grad))
        names = [name for name in self._listed("direction") if name in DIRECTIONS and name not in ways]
        if names:
            self.faults.append(
                f"direction=backward: op {op.name} has no backward; it needs `grad` and `cost.backward`"
            )
            return ways
        return self._names("direction", ways, ("forward",))

    def _layouts(self, op: Op) -> tuple[str, ...]:
        declared = {layout for each in op.inputs for layout in each.layouts} | {"contiguous"}
        return self._names("layout", tuple(each for each in LAYOUTS if each in declared), ("contiguous",))

    def _variants(self, op: Op) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(those to run, those named one by one), both in the op's order."""
        if isinstance(self.raw["variant"], dict):  # by op, in an experiment over several
            self.raw["variant"] = self.raw["variant"].get(op.name, "all")
        groups = {each.group for each in op.variants.values() if each.group}
        names, run = self._listed("variant"), set()
        self._each("variant", names, [*op.variants, "all", *sorted({*groups, declaration.PEER})], "variant")
        for name, variant in op.variants.items():
            everyday = "all" in names and variant.group != declaration.PEER
            if everyday or name in names or (variant.group and variant.group in names):
                run.add(name)
        if names and not run and not self.faults:
            self.faults.append(f"variant={','.join(names)}: op {op.name} has none in that group")
        return tuple(n for n in op.variants if n in run), tuple(n for n in op.variants if n in names)

    def _attrs(self, op: Op) -> dict[str, tuple[Any, ...]]:
        asked = self.raw["attrs"]
        self._each("attrs", asked, op.attrs, "attribute")
        chosen = {}
        for name, declared in op.attrs.items():
            chosen[name], faults = attributes.chosen(asked.get(name, declared[0]), declared)
            self.faults += [f"attrs.{name}={fault}" for fault in faults]
        return chosen

    def _files(self, op: Op) -> dict[str, str]:
        asked, names = self.raw["inputs"], [each.name for each in op.inputs]
        self._each("inputs", asked, names, "input")
        files = {}
        for name, text in ((name, text) for name, text in asked.items() if name in names):
            path = Path(str(text)).expanduser().absolute()
            if path.suffix not in (".pt", ".npy"):
                self.faults.append(f"inputs.{name}={text}: a .pt or a .npy file is needed")
            elif not path.is_file():
                self.faults.append(f"inputs.{name}={text}: there is no such file")
            files[name] = str(path)
        return files

    def _headers(self, files: dict[str, str]) -> dict[str, arrays.Header]:
        """Of the .npy files that can be read."""
        found = {}
        for name, text in files.items():
            if text.endswith(".npy") and Path(text).is_file():
                try:
                    found[name] = arrays.header(Path(text))
                except Refusal as refusal:
                    self.faults.append(f"inputs.{name}={text}: {refusal}")
        return found

    def _dims_of_files(self, op: Op, headers: dict[str, arrays.Header]) -> dict[str, Any]:
        """What was typed as `shape.<dim>=`; where no shape was, the dims that the files tell."""
        if self.raw["shape"] or self.raw["shapes"] is not None:
            return self.raw["shape"]
        found, faults = arrays.dims(op, headers)
        self.faults += faults
        return found

    def _fit(self, op: Op, headers: dict[str, arrays.Header], chosen: dict[str, Any]) -> None:
        """Files against the one shape of the run; with several the cases say which does not fit."""
        if self.faults or not headers:
            return
        self.faults += arrays.dtype_faults(op, headers, chosen["dtypes"])
        if len(chosen["shapes"]) == 1:
            attrs = {name: values[0] for name, values in chosen["attrs"].items()}
            self.faults += arrays.faults(op, headers, chosen["shapes"][0], attrs)

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


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _yaml(raw: dict[str, Any]) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(raw, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110)
