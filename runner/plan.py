"""Settings -> plan: every case and every row, before anything is built. Pure: no torch, no files."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

from runner.files import canonical, short_hash
from runner.model import Case, Entry, Form, Input, Plan, PlannedCase, Settings, Variant
from runner.op import dtypes, extras, formula, shapes

_LEAST_DIMS = {"transposed": 2, "strided": 1}  # below, an input of that layout is contiguous
Small = dict[str, dict[str, Case]]  # by attributes, dtype and direction: what is checked beside, by layout


def plan(settings: Settings) -> Plan:
    """All cases of a run in the order attributes, shapes, dtypes, directions, layouts.

    Of a workload: the checks of its forms, each variant at its op's smallest shape, forward and backward.
    """
    if settings.workload:
        forms = [_check_of(settings, form) for form in settings.workload.forms]
        return Plan(tuple(case for each in forms for case in plan(each).cases))
    small: Small = {}
    cases = (_planned(settings, small, *combination) for combination in _combinations(settings))
    return Plan(tuple(cases))


def _check_of(settings: Settings, form: Form) -> Settings:
    op, asked = form.op, settings.workload.args.get("dtype", "")
    return replace(
        settings,
        workload=None,
        op=op,
        variants=(form.variant.name,),
        named=(form.variant.name,),
        dtypes=(asked if asked in op.dtypes else op.dtypes[0],),
        directions=("forward", "backward") if op.grad and "backward" in op.cost else ("forward",),
        attrs={name: values[:1] for name, values in op.attrs.items()},
        layouts=("contiguous",),
        shapes=op.shapes["smoke"][:1],
        smoke=op.shapes["smoke"],
        mode="check",
    )


def _combinations(settings: Settings):
    attrs = [dict(zip(settings.attrs, values)) for values in itertools.product(*settings.attrs.values())]
    return itertools.product(attrs, settings.shapes, settings.dtypes, settings.directions, settings.layouts)


def _planned(settings: Settings, small: Small, attrs, shape, dtype, direction, layout) -> PlannedCase:
    case = _case(settings, attrs, shape, dtype, direction, layout)
    entries = tuple(
        _entry(settings, case, variant, params)
        for variant in (settings.op.variants[name] for name in settings.variants)
        for params in _parameter_sets(variant)
    )
    entries, extra = _beside(settings, small, case, tuple(_indexed(entries)))
    smoke = ()
    if any(entry.interpreted for entry in entries):
        drawn = replace(settings, files={})  # a file has one shape, and these are others
        smoke = tuple(_case(drawn, attrs, small, dtype, direction, layout) for small in settings.smoke)
    return PlannedCase(case, entries, smoke, extra)


def _beside(
    settings: Settings, small: Small, case: Case, entries
) -> tuple[tuple[Entry, ...], tuple[Case, ...]]:
    """The entries with what each is checked on besides, and all of that."""
    key = canonical([case.attrs, case.dtype, case.direction])  # the same beside all shapes and layouts
    if key not in small:
        small[key] = _odd(settings, case)
    collected = extras.Extras(settings.op, case, small[key])

    def accepted(entry: Entry):
        return lambda other: not _entry(settings, other, entry.variant, entry.params).skip

    found = [e if e.skip else replace(e, extras=collected.of(e.variant, accepted(e))) for e in entries]
    return tuple(found), tuple(collected.found)


def _odd(settings: Settings, case: Case) -> dict[str, Case]:
    """The case at the op's odd small shape, by layout; empty where the op has none."""
    drawn = replace(settings, files={})

    def at(shape: dict[str, int], layout: str = "contiguous") -> Case:
        return _case(drawn, case.attrs, shape, case.dtype, case.direction, layout)

    shape = extras.odd_shape(settings.op, list(settings.smoke), at)
    return {layout: at(shape, layout) for layout in extras.layouts(settings.op)} if shape else {}


def _parameter_sets(variant: Variant) -> list[dict[str, Any]]:
    return [dict(zip(variant.params, values)) for values in itertools.product(*variant.params.values())]


def _indexed(entries):
    for index, entry in enumerate(entries):
        yield Entry(index, entry.variant, entry.params, entry.memory_bytes, entry.skip, entry.interpreted)


def _case(settings: Settings, attrs, shape, dtype, direction, layout) -> Case:
    op = settings.op
    inputs = _inputs(settings, attrs, shape, dtype, layout)
    out_dtype = dtypes.promote([(i.dtype, len(i.shape)) for i in inputs])
    names = case_names(attrs, shapes.with_absent(op.dims, shape), inputs, out_dtype)
    cost = op.cost[direction]
    identity = {"op": op.name, "attrs": attrs, "shape": shape, "layout": layout, "dtype": dtype}
    return Case(
        case_id=short_hash(identity | {"direction": direction}),
        op=op.name,
        attrs=attrs,
        shape=shape,
        layout=layout,
        dtype=dtype,
        direction=direction,
        device=settings.device,
        inputs=inputs,
        out_dtype=out_dtype,
        grad=_differentiable(op.grad, inputs) if direction == "backward" else (),
        reference=op.reference,
        reference_kwargs=op.reference_kwargs,
        flops=formula.amount(cost.flops, names, f"op {op.name}: cost.{direction}.flops"),
        read_bytes=formula.amount(cost.read, names, f"op {op.name}: cost.{direction}.read"),
        write_bytes=formula.amount(cost.write, names, f"op {op.name}: cost.{direction}.write"),
        baseline=op.baseline,
        builtin=_builtin(settings, names, device_words(settings.device, dtype, direction, layout)),
    )


def device_words(device: str, dtype: str, direction: str, layout: str) -> dict[str, str]:
    """The words that `accepts` and `opt_in` may name besides dims and attributes."""
    return {"device": device.partition(":")[0], "dtype": dtype, "direction": direction, "layout": layout}


def _builtin(settings: Settings, names: dict[str, Any], words: dict[str, str]) -> Variant | None:
    """The op's built-in where it takes this case and is a plain function of torch."""
    variant = settings.op.variants.get(settings.op.builtin)
    if variant is None or variant.target.module.split(".")[0] != "torch" or variant.params:
        return None
    taken = not variant.accepts or formula.evaluate(variant.accepts, {**names, **words})
    return variant if taken else None


def _inputs(settings: Settings, attrs, shape, dtype: str, layout: str) -> tuple[Input, ...]:
    specs = settings.op.inputs
    result = []
    for spec, part in zip(specs, dtypes.per_input(dtype, len(specs)), strict=True):
        where = f"op {settings.op.name}: inputs.{spec.name}.shape"
        sizes = shapes.of_input(settings.op, spec.shape, shape, attrs, where)
        fits = layout in spec.layouts and len(sizes) >= _LEAST_DIMS.get(layout, 0)
        chosen = layout if fits else "contiguous"
        file = settings.files.get(spec.name, "")
        result.append(Input(spec.name, sizes, spec.dtype or part, spec.init, chosen, file))
    return tuple(result)


def _differentiable(names: tuple[str, ...], inputs: tuple[Input, ...]) -> tuple[str, ...]:
    """Integers have no gradient."""
    return tuple(i.name for i in inputs if i.name in names and dtypes.is_floating(i.dtype))


def case_names(attrs, shape, inputs: tuple[Input, ...], out_dtype: str) -> dict[str, Any]:
    """What a formula may name: dims, attributes and element sizes in bytes."""
    names: dict[str, Any] = {**attrs, **shape, "itemsize_out": dtypes.itemsize(out_dtype)}
    names |= {f"itemsize_{i.name}": dtypes.itemsize(i.dtype) for i in inputs}
    if len({i.dtype for i in inputs}) == 1:
        names["itemsize"] = dtypes.itemsize(inputs[0].dtype)
    return names


def _entry(settings: Settings, case: Case, variant: Variant, params: dict[str, Any]) -> Entry:
    sizes = shapes.with_absent(settings.op.dims, case.shape)
    names = case_names(case.attrs, sizes, case.inputs, case.out_dtype)
    where = f"op {case.op}: variants.{variant.name}.memory"
    own = formula.amount(variant.memory, {**names, **params}, where) if variant.memory else 0.0
    kind = case.device.partition(":")[0]
    words = device_words(case.device, case.dtype, case.direction, case.layout)
    skip = _skip(settings, variant, {**names, **params, **words}, case)
    interpreted = not skip and variant.language == "triton" and kind == "cpu"
    return Entry(0, variant, params, bytes_of(case) + own, skip, interpreted)


def bytes_of(case: Case) -> float:
    """Bytes of a case's inputs and outputs."""
    return sum(math.prod(i.shape) * dtypes.itemsize(i.dtype) for i in case.inputs) + case.write_bytes


def check_bytes(case: Case) -> float:
    """Bytes that checking a case needs besides: inputs and output again in float64, one temporary."""
    elements = sum(math.prod(i.shape) for i in case.inputs)
    return 8.0 * (elements + 2 * case.write_bytes / dtypes.itemsize(case.out_dtype))


def _skip(settings: Settings, variant: Variant, names: dict[str, Any], case: Case) -> str:
    """Why a variant does not apply to a case; empty when it does."""
    kind = names["device"]
    if case.direction == "backward" and not case.grad:
        return f"no input of this op has a gradient in {case.dtype}"
    if variant.language == "cuda" and kind == "cpu":
        return "CUDA C++ needs a GPU, and this run is on the CPU"
    if variant.language == "cpp" and kind == "cuda":
        return "C++ for the CPU, and this run is on a GPU"
    if variant.accepts and not formula.evaluate(variant.accepts, names):
        return f"accepts only {variant.accepts}; here {_values(variant.accepts, names)}"
    if variant.opt_in and variant.name not in settings.named and formula.evaluate(variant.opt_in, names):
        return f"runs only when named (variant={variant.name}) where {variant.opt_in}"
    return ""


def _values(text: str, names: dict[str, Any]) -> str:
    return ", ".join(f"{name}={names[name]}" for name in formula.names(text) if name in names)
