"""What may stand in a configuration: plain dataclasses, the one list of keys, types and defaults.

`config/compose.py` stores `Config` with Hydra as the first of the defaults; `typed.py` holds what was
composed against these types. The text beside the type of a key is its line in `--help`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

Number = int | float
Names = str | list[str]
Table = dict[str, Any]
ByOp = dict[str, list[str]]  # for an experiment over several ops


@dataclass
class MeasureNode:
    """`conf/measure/<name>.yaml`."""

    warmup: int
    trials: int | str
    precision: Number = 0.005
    min_trials: int = 20
    max_trials: int = 10_000
    budget_s: Number = 2.0
    threads: int = 0


@dataclass
class LimitsNode:
    """Seconds after which a stage is stopped; host memory of a worker, by default 90 % of what is free."""

    start_s: Number = 120
    build_s: Number = 600
    inputs_s: Number = 300
    check_s: Number = 600
    measure_s: Number = 600
    profile_s: Number = 300
    memory_gb: Number | None = None


@dataclass
class InputNode:
    """One input of an op; sizes are numbers, dims or formulas."""

    shape: list[str | int]
    init: str = "normal"
    layouts: list[str] = field(default_factory=lambda: ["contiguous"])
    dtype: str | None = None
    check: list[str] = field(default_factory=lambda: ["huge", "tiny"])


@dataclass
class ReferenceNode:
    """What the variants are checked against, evaluated in float64."""

    target: str
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class CostNode:
    """Formulas: floating-point operations, bytes read, bytes written."""

    flops: str | Number
    read: str | Number
    write: str | Number


@dataclass
class VariantNode:
    """One implementation of an op."""

    target: str
    why: str = ""
    sources: list[str] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    params: dict[str, list[Any] | str | Number | bool] = field(default_factory=dict)
    compile: dict[str, Any] | None = None
    accepts: str | bool = ""
    opt_in: str | bool = ""
    requires: list[str] = field(default_factory=list)
    group: str = ""
    unit: str = "fp32"
    work: Number = 1.0
    accuracy: str = "elementwise"
    memory: str | Number = ""


@dataclass
class OpNode:
    """`conf/op/<name>.yaml`."""

    name: str
    dims: list[str]
    shapes: dict[str, list[dict[str, int]]]
    dtypes: list[str]
    inputs: dict[str, InputNode]
    reference: ReferenceNode
    cost: dict[str, CostNode]
    baseline: str
    variants: dict[str, VariantNode]
    why: str = ""
    dim_defaults: dict[str, str | int | None] = field(default_factory=dict)
    builtin: str | None = None
    attrs: dict[str, list[Any]] = field(default_factory=dict)
    grad: list[str] = field(default_factory=list)


@dataclass
class WorkloadNode:
    """`conf/workload/<name>.yaml`: a step to be profiled. Each name of `forms` is a further key."""

    target: str = ""
    name: str = ""
    why: str = ""
    forms: dict[str, str] = field(default_factory=dict)
    compile: bool = False
    steps: int = 5
    timed_steps: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Config:
    """The keys of a run. Every one has a default; `op` alone has to be given."""

    op: Annotated[OpNode | None, "what is computed: a file of conf/op (mode=list describes them)"] = None
    variant: Annotated[Names | ByOp, "all, a name, a group such as peer, a list: [all,peer]"] = "all"
    dtype: Annotated[Names | None, "float32, bfloat16+float32 (one per input), a list, all"] = None
    direction: Annotated[Names, "forward, backward, [forward,backward]"] = "forward"
    attrs: Annotated[Table, "attrs.<name>=: a value, a list, all"] = field(default_factory=dict)
    shape: Annotated[Table, "shape.<dim>=: that dim in every shape"] = field(default_factory=dict)
    shapes: Annotated[str | list[Table] | None, "a set of the op (smoke, table) or a list, see above"] = None
    layout: Annotated[Names, "contiguous, transposed, offset1, strided, a list, all"] = "contiguous"
    inputs: Annotated[Table, "inputs.<name>=: the .pt or .npy file of it"] = field(default_factory=dict)
    device: Annotated[str, "auto, cpu, cuda, cuda:1, cuda:any (one that no other run has)"] = "auto"
    mode: Annotated[str, "what to do, see below"] = "bench"
    check: Annotated[str, "standard, or sanitizer: also under NVIDIA's compute-sanitizer"] = "standard"
    measure: Annotated[MeasureNode, "default, quick, thorough: how times are taken"] = field(
        default_factory=dict
    )
    timing: Annotated[str, "cold, warm, graph (CUDA graphs) or burst (back to back)"] = "cold"
    trials: Annotated[int | str | None, "timed calls of each variant; auto: until precise"] = None
    baseline: Annotated[str | None, "the variant that speedup is measured against"] = None
    seed: Annotated[int | None, "of the inputs; drawn at random and recorded when not given"] = None
    output: Annotated[str, "where run folders go; from where you are"] = "outputs"
    limits: Annotated[
        LimitsNode, "limits.<stage>_s=: seconds of start, build, inputs, check, measure, profile; memory_gb"
    ] = field(default_factory=lambda: asdict(LimitsNode()))  # type: ignore[assignment]
    workload: Annotated[
        Table, "with mode=profile: a step in place of an op, or workload.target=my.py:make_step"
    ] = field(default_factory=lambda: asdict(WorkloadNode()))
    claims: Annotated[list[Table], "published figures to hold against those of a sweep's profiles"] = field(
        default_factory=list
    )
    before: Annotated[str, "with workload=: the folder of an earlier profile to compare with"] = ""
    profiler: Annotated[str, "with mode=profile: torch, and then nsys or ncu on the same calls"] = "torch"
    why: Annotated[str, "a sentence for the record; experiments have one"] = ""


MODES = {
    "bench": "build, check and time",
    "check": "build and check, no timing",
    "traps": "bench, then the same calls timed in well-known wrong ways, to compare",
    "debug": "check with launch blocking and full tracebacks, no timing",
    "plan": "print the cases, the variants and the memory they need; runs nothing",
    "list": "print ops and variants and why they are there; needs no op",
    "profile": "bench, then where the time goes: operators, kernels, waits; with workload= a whole step",
    "ceilings": "measure what the device can do, and print it; needs no op",
}
DIRECTIONS = ("forward", "backward")
LAYOUTS = ("contiguous", "transposed", "offset1", "strided")
TIMINGS = {
    "cold": "the cache is emptied before each timed call",
    "warm": "one call after another, each timed",
    "graph": "one call in a CUDA graph, replayed after the cache is emptied",
    "burst": "calls back to back, their mean",
}
PROFILERS = ("torch", "nsys", "ncu")
INITS = ("normal", "uniform", "integers")
UNITS = ("fp32", "tf32", "bf16", "fp64", "product")
ACCURACIES = ("elementwise", "normwise")
CHECKS = ("huge", "tiny", "infinities")
DEPTHS = ("standard", "sanitizer")  # of the check
SETS = ("cuda", "cpu", "smoke")
