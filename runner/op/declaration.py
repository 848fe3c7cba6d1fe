"""An op's YAML, already plain data, becomes a `model.Op`; every fault in it is collected."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runner.model import Cost, InputSpec, Op, Refusal, Target, Variant
from runner.op import dtypes, formula, shapes, targets
from runner.schema import ACCURACIES, CHECKS, DIRECTIONS, INITS, LAYOUTS, SETS, UNITS, OpNode, VariantNode
from runner.typed import conform, defaults, nearest

PEER = "peer"
WORDS = ("device", "dtype", "direction", "layout")  # further names in `accepts` and `opt_in`
TAKEN = {*WORDS, "itemsize", "itemsize_out", "inf", "min", "max"}
_REPLAYED = ("reduce-overhead", "max-autotune")  # modes of torch.compile
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}")  # of what folders and files are called after
NO_COST = (
    "cost: missing; give flops, read and write as formulas under cost.forward, "
    "for without them nobody can say how near a time is to what the card can do"
)


def build(raw: Any, search: targets.Search, file: str = "") -> tuple[Op | None, list[str]]:
    """(the op, nothing) or (None, what is wrong), from plain data. `file`: the YAML it was read from."""
    builder = _Builder(raw, search)
    try:
        op = builder.build()
    except Refusal as refusal:
        return None, [str(refusal)]
    if op and file and op.name != (stem := Path(file).stem):
        return None, [f"name: {op.name!r}, and the file says {stem!r}; make them one"]
    return op, builder.faults


class _Builder:
    """Collects in `faults` one entry for each thing that is wrong."""

    def __init__(self, raw: dict[str, Any], search: targets.Search):
        self.raw = raw
        self.search = search
        self.faults: list[str] = []

    def build(self) -> Op | None:
        """The op, or None when its faults are too basic to go on."""
        self.faults += [NO_COST if f == "cost: missing" else f for f in conform(OpNode, self.raw, "")]
        if self.faults:
            return None
        self.raw = _with_defaults(OpNode, self.raw)
        self._named("name", self.raw["name"])
        self._names()
        self._inputs()
        self._costs()
        sets = {name: tuple(self._shapes(name, each)) for name, each in self.raw["shapes"].items()}
        variants = {name: self._variant(name, each) for name, each in self.raw["variants"].items()}
        self._choices(variants)
        reference = self._target("reference.target", self.raw["reference"]["target"])
        return None if self.faults else self._op(sets, variants, reference)

    def _op(self, sets: dict, variants: dict, reference: Target) -> Op:
        raw = self.raw
        return Op(
            name=raw["name"],
            why=raw["why"],
            dims=tuple(raw["dims"]),
            dim_defaults={
                dim: None if text is None else str(text) for dim, text in raw["dim_defaults"].items()
            },
            attrs={name: tuple(values) for name, values in raw["attrs"].items()},
            shapes=sets,
            dtypes=tuple(raw["dtypes"]),
            inputs=tuple(_input(name, each) for name, each in raw["inputs"].items()),
            reference=reference,
            reference_kwargs=raw["reference"].get("kwargs", {}),
            grad=tuple(raw["grad"]),
            cost={way: Cost(**{k: str(v) for k, v in each.items()}) for way, each in raw["cost"].items()},
            baseline=raw["baseline"],
            builtin=_builtin(raw),
            variants=variants,
        )

    def _names(self) -> None:
        """Dims and attributes share one namespace in formulas."""
        raw, seen = self.raw, dict.fromkeys(TAKEN, "a word of formulas")
        for kind, names in (("dim", raw["dims"]), ("attribute", raw["attrs"]), ("input", raw["inputs"])):
            for name in names:
                if not self._identifier(f"{kind} {name!r}", name):
                    continue
                if kind != "input" and name in seen:
                    self.faults.append(f"{kind} {name!r}: the name is taken, it is also {seen[name]}")
                seen.setdefault(name, f"{'a dim' if kind == 'dim' else 'an ' + kind}")
        for dim, text in raw["dim_defaults"].items():
            self._known(f"dim_defaults.{dim}", dim, raw["dims"], "dim")
            if text is not None:
                self._formula(f"dim_defaults.{dim}", text, raw["dims"])
        for name, values in raw["attrs"].items():
            if not values:
                self.faults.append(
                    f"attrs.{name}: an empty list; give the values it may take, the first is the default"
                )

    def _identifier(self, where: str, name: str) -> bool:
        """Whether formulas and calls can hold a name; a fault when not."""
        fits = name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and len(name) <= 60
        if not fits:
            self.faults.append(f"{where}: a name has letters, digits and _, and begins with no digit")
        return fits

    def _named(self, where: str, name: str) -> None:
        if not NAME.fullmatch(name):
            self.faults.append(f"{where} {name!r}: a name has at most 60 letters, digits, _, - and .")

    def _inputs(self) -> None:
        raw = self.raw
        if not raw["inputs"]:
            self.faults.append("inputs: an op needs at least one")
        for name, each in raw["inputs"].items():
            for i, size in enumerate(each["shape"]):
                self._formula(f"inputs.{name}.shape[{i}]", size, [*raw["dims"], *raw["attrs"]])
            self._known(f"inputs.{name}.init", each.get("init", "normal"), INITS, "init")
            for layout in each.get("layouts", []):
                self._known(f"inputs.{name}.layouts", layout, LAYOUTS, "layout")
            for kind in each.get("check", []):
                self._known(f"inputs.{name}.check", kind, CHECKS, "kind of values")
            if each.get("dtype") is not None:
                self._known(f"inputs.{name}.dtype", each["dtype"], dtypes.NAMES, "dtype")
        for name in raw["grad"]:
            self._known("grad", name, raw["inputs"], "input")
        self._dtypes()

    def _dtypes(self) -> None:
        count = len(self.raw["inputs"])
        if not self.raw["dtypes"]:
            self.faults.append("dtypes: an empty list")
        for entry in self.raw["dtypes"]:
            parts = entry.split("+")
            for part in parts:
                self._known("dtypes", part, dtypes.NAMES, "dtype")
            if len(parts) not in (1, count):
                self.faults.append(
                    f"dtypes: {entry} names {len(parts)} dtypes, and the op has {count} inputs"
                )

    def _costs(self) -> None:
        cost = self.raw["cost"]
        if "forward" not in cost:
            self.faults.append(NO_COST.replace("cost:", "cost.forward:", 1))
        for way, each in cost.items():
            self._known("cost", way, DIRECTIONS, "direction")
            for name, text in each.items():
                self._formula(f"cost.{way}.{name}", text, self._formula_names())

    def _formula_names(self) -> list[str]:
        raw = self.raw
        sizes = [f"itemsize_{name}" for name in raw["inputs"]]
        return [*raw["dims"], *raw["attrs"], "itemsize", "itemsize_out", *sizes]

    def _shapes(self, name: str, entries: list[dict[str, int]]) -> Iterable[dict[str, int]]:
        self._named("shapes: set", name)
        if not entries:
            self.faults.append(f"shapes.{name}: an empty list")
        for i, entry in enumerate(entries):
            where = f"shapes.{name}[{i}]"
            wrong = shapes.faults(self.raw, entry, where)
            self.faults += wrong
            if not wrong and not self.faults:
                yield shapes.complete(self.raw["dims"], self.raw["dim_defaults"], entry)

    def _choices(self, variants: dict[str, Variant]) -> None:
        raw = self.raw
        for name in SETS:
            if name not in raw["shapes"]:
                self.faults.append(f"shapes.{name}: missing; an op has the sets {', '.join(SETS)}")
        if not variants:
            self.faults.append("variants: an op needs at least one")
        self._known("baseline", raw["baseline"], variants, "variant")
        if raw["builtin"]:
            self._known("builtin", raw["builtin"], variants, "variant")
            self.faults += _builtin_faults(raw["builtin"], variants.get(raw["builtin"]))
        groups = {each["group"] for each in raw["variants"].values() if each.get("group")} | {"all", PEER}
        for name in groups & set(variants):
            self.faults.append(f"variants.{name}: the name also means a group of variants; choose another")

    def _variant(self, name: str, raw: dict[str, Any]) -> Variant:
        raw, where = _with_defaults(VariantNode, raw), f"variants.{name}"
        self._named("variants: variant", name)
        if raw["group"]:
            self._named(f"{where}.group: group", raw["group"])
        self.faults += [f"{where}.requires: an empty name" for each in raw["requires"] if not each.strip()]
        raw["params"] = {k: v if isinstance(v, list) else [v] for k, v in raw["params"].items()}
        self._variant_formulas(where, raw)
        self._variant_arguments(where, raw)
        self._compiled(f"{where}.compile", raw["compile"] or {})
        self._known(f"{where}.unit", raw["unit"], UNITS, "unit")
        self._known(f"{where}.accuracy", raw["accuracy"], ACCURACIES, "accuracy")
        if not 0 < raw["work"] < math.inf:
            self.faults.append(f"{where}.work: must be above 0 and finite, got {raw['work']}")
        sources = tuple(self._source(f"{where}.sources", each) for each in raw["sources"])
        missing = "" in sources
        target = self._target(f"{where}.target", raw["target"], sources, raw["requires"], missing)
        raw["params"] = {key: tuple(values) for key, values in raw["params"].items()}
        for key in ("accepts", "opt_in", "memory"):
            raw[key] = str(raw[key])
        raw |= {"requires": tuple(raw["requires"]), "sources": sources, "work": float(raw["work"])}
        language = "python" if missing else targets.language(target, sources)
        return Variant(**raw | {"name": name, "target": target, "language": language})

    def _variant_formulas(self, where: str, raw: dict[str, Any]) -> None:
        names = [*self._formula_names(), *raw["params"]]
        for key, known in (("memory", names), ("accepts", [*names, *WORDS]), ("opt_in", [*names, *WORDS])):
            if raw[key] != "":
                self._formula(f"{where}.{key}", raw[key], known)

    def _variant_arguments(self, where: str, raw: dict[str, Any]) -> None:
        """Attributes, kwargs and params are all passed by name: no name twice."""
        seen = dict.fromkeys(self.raw["attrs"], "attrs")
        for key in ("kwargs", "params"):
            for name in raw[key]:
                self._identifier(f"{where}.{key}: {name!r}", name)
                if name in seen:
                    self.faults.append(
                        f"{where}.{key}.{name}: also in {seen[name]}; it can be passed only once"
                    )
                seen[name] = f"{where}.{key}"
        for name, values in raw["params"].items():
            if not values:
                self.faults.append(f"{where}.params.{name}: an empty list; give the values to run")

    def _compiled(self, where: str, wanted: dict[str, Any]) -> None:
        """No CUDA graphs of the compiler's own: what they return lies where the next call writes."""
        options = wanted["options"] if isinstance(wanted.get("options"), dict) else {}
        if wanted.get("mode") in _REPLAYED or options.get("triton.cudagraphs") is True:
            self.faults.append(
                f"{where}: this replays CUDA graphs, and each call overwrites what the one before returned, "
                "so no output can be checked; leave mode away or take max-autotune-no-cudagraphs, and "
                "measure calls in a CUDA graph with timing=graph"
            )

    def _source(self, where: str, text: str) -> str:
        try:
            return str(self.search.file(text))
        except targets.NotFound as error:
            self.faults.append(f"{where}: {error}")
            return ""

    def _target(self, where: str, text: str, sources=(), requires=(), unknown: bool = False) -> Target:
        """`unknown`: a source is missing, so what it registers cannot be told."""
        try:
            return targets.find(text, self.search, sources, requires)
        except targets.NotFound as error:
            if not unknown:
                self.faults.append(f"{where}: {error}")
            return Target(text, "")

    def _formula(self, where: str, text: object, known: Iterable[str]) -> None:
        wrong = formula.fault(str(text), known)
        if wrong:
            self.faults.append(f"{where}: the formula {wrong}")

    def _known(self, where: str, name: str, known: Iterable[str], noun: str) -> None:
        if name not in known:
            self.faults.append(f"{where}: no {noun} {name!r}{nearest(name, known)}")


def _with_defaults(node: type, raw: dict[str, Any]) -> dict[str, Any]:
    return {**defaults(node), **raw}


def _builtin(raw: dict[str, Any]) -> str:
    """The variant that others' errors are measured against: the declared one, or one that is called so."""
    return raw["builtin"] or ("builtin" if "builtin" in raw["variants"] else "")


def _builtin_faults(name: str, variant: Variant | None) -> list[str]:
    plain = variant is None or (variant.target.module.split(".")[0] == "torch" and not variant.params)
    return [] if plain else [f"builtin: {name} is no function of torch, and the judge calls nothing else"]


def _input(name: str, raw: dict[str, Any]) -> InputSpec:
    shape = tuple(str(size) for size in raw["shape"])
    layouts = tuple(raw.get("layouts") or ["contiguous"])
    check = tuple(raw.get("check", ("huge", "tiny")))
    return InputSpec(name, shape, raw.get("init", "normal"), layouts, raw.get("dtype"), check)
