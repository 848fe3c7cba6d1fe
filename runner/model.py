"""What flows from `config` on: frozen, plain, JSON-able values. No torch, no omegaconf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

IPC, HOST = "CUDA IPC", "shared host memory"  # how the judge sees a worker's outputs


class Refusal(Exception):
    """A user's mistake: one sentence that names the place and the remedy. Exit code 2."""


@dataclass(frozen=True)
class InputSpec:
    """One input of an op as declared: sizes are formulas over dims and attributes."""

    name: str
    shape: tuple[str, ...]
    init: str
    layouts: tuple[str, ...]
    dtype: str | None = None  # fixed dtype; None takes the case's
    check: tuple[str, ...] = ()  # further values that variants are checked on, of `extras.KINDS`


@dataclass(frozen=True)
class Cost:
    """Formulas: floating-point operations, bytes that must be read, bytes that must be written."""

    flops: str
    read: str
    write: str


@dataclass(frozen=True)
class Target:
    """A callable named in YAML, found but not run.

    Exactly one of `module` (dotted name, imported) and `file` (path to a .py) is set;
    `torch.ops.<namespace>.<op>` has module `torch.ops.<namespace>`. `path` is the source file
    behind it where there is one.
    """

    text: str
    attribute: str
    module: str = ""
    file: str = ""
    path: str = ""


@dataclass(frozen=True)
class Variant:
    """One implementation, as declared in the op's YAML."""

    name: str
    target: Target
    why: str = ""
    language: str = "python"  # python | triton | cpp | cuda: what it needs to run
    sources: tuple[str, ...] = ()  # absolute paths of .cu / .cpp
    kwargs: dict[str, Any] = field(default_factory=dict)
    params: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    compile: dict[str, Any] | None = None  # keyword arguments of torch.compile
    accepts: str = ""
    opt_in: str = ""  # a formula: when true the variant runs only if it is named
    requires: tuple[str, ...] = ()
    group: str = ""
    unit: str = "fp32"
    work: float = 1.0
    accuracy: str = "elementwise"
    memory: str = ""


@dataclass(frozen=True)
class Op:
    """What is computed, as declared in `conf/op/<name>.yaml`."""

    name: str
    why: str
    dims: tuple[str, ...]
    dim_defaults: dict[str, str | None]  # None: a dim that is left out has no axis
    attrs: dict[str, tuple[Any, ...]]
    shapes: dict[str, tuple[dict[str, int], ...]]
    dtypes: tuple[str, ...]
    inputs: tuple[InputSpec, ...]
    reference: Target
    reference_kwargs: dict[str, Any]
    grad: tuple[str, ...]
    cost: dict[str, Cost]  # by direction
    baseline: str
    builtin: str  # the variant whose error others are measured against; empty where there is none
    variants: dict[str, Variant]


@dataclass(frozen=True)
class Measure:
    """How times are taken (`conf/measure/*.yaml`)."""

    timing: str  # cold | warm | graph | burst
    warmup: int  # untimed calls before the first trial
    trials: int  # timed calls; 0 is auto, which goes by the next four
    precision: float  # half of the mean's 95 % interval over the mean
    min_trials: int
    max_trials: int
    budget_s: float  # per variant
    threads: int  # CPU threads; 0 leaves torch's choice


@dataclass(frozen=True)
class Limits:
    """Seconds after which a stage is stopped, and what a worker may hold."""

    start_s: float
    build_s: float
    inputs_s: float
    check_s: float
    measure_s: float
    profile_s: float = 300.0
    memory_gb: float | None = None  # host memory; None is most of what is available


@dataclass(frozen=True)
class Form:
    """An argument of a workload that takes a variant of an op."""

    argument: str
    op: Op
    variant: Variant
    params: dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """A step to be profiled: `target(**args, **forms)` returns a callable that makes one."""

    name: str
    target: Target
    forms: tuple[Form, ...]
    args: dict[str, Any]
    compile: bool
    steps: int  # under the profiler
    timed_steps: int = 0  # in a row without it; 0 takes as many as fill half a second


@dataclass(frozen=True)
class Settings:
    """A validated run: what the user asked for, nothing left to look up."""

    op: Op
    variants: tuple[str, ...]  # names, in the op's order
    named: tuple[str, ...]  # those the user named one by one (not through all or a group)
    dtypes: tuple[str, ...]  # "float32", or "bfloat16+float32" for one per input
    directions: tuple[str, ...]
    attrs: dict[str, tuple[Any, ...]]
    layouts: tuple[str, ...]
    shapes: tuple[dict[str, int], ...]  # every dim has a value
    smoke: tuple[dict[str, int], ...]
    files: dict[str, str]  # input name -> absolute path of a .pt or .npy
    device: str  # "cpu" or "cuda:N"; auto is already decided
    mode: str
    check: str  # standard | sanitizer
    measure: Measure
    limits: Limits
    seed: int
    experiment: str
    output: str  # absolute folder that run folders go under
    command: tuple[str, ...]  # the overrides, for the record
    resolved_yaml: str
    op_file: str = ""  # the op's YAML
    config_files: tuple[str, ...] = ()  # absolute paths of what was composed
    search: tuple[str, ...] = ()  # folders that targets and files were looked for in
    workload: Workload | None = None  # with mode=profile, in place of an op
    before: str = ""  # folder of an earlier profile to compare with
    profiler: str = "torch"  # or nsys, ncu
    why: str = ""  # a sentence for the record

    @property
    def name(self) -> str:
        """What a run's folder is called after, when it is no experiment's."""
        return self.workload.name if self.workload else self.op.name


@dataclass(frozen=True)
class Input:
    """One input of a case: numbers only."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    init: str
    layout: str
    file: str = ""
    scale: float = 1.0  # of the drawn values
    specials: bool = False  # infinities and a NaN among them


@dataclass(frozen=True)
class Case:
    """What its variants share."""

    case_id: str
    op: str
    attrs: dict[str, Any]
    shape: dict[str, int]
    layout: str
    dtype: str
    direction: str
    device: str
    inputs: tuple[Input, ...]
    out_dtype: str
    grad: tuple[str, ...]
    reference: Target
    reference_kwargs: dict[str, Any]
    flops: float
    read_bytes: float
    write_bytes: float
    baseline: str
    builtin: Variant | None = None  # PyTorch's own, where the judge can call it on this case
    where: str = ""  # what it is, beside the case that is timed; empty for that one


@dataclass(frozen=True)
class Entry:
    """One planned row: a variant with one parameter set, on one case."""

    index: int
    variant: Variant
    params: dict[str, Any]
    memory_bytes: float  # inputs, outputs and the variant's own
    skip: str = ""  # why it does not apply; empty when it does
    interpreted: bool = False  # Triton on a CPU: checked at the smoke shapes, never timed
    extras: tuple[int, ...] = ()  # which of the planned case's it is checked on besides


@dataclass(frozen=True)
class PlannedCase:
    case: Case
    entries: tuple[Entry, ...]
    smoke: tuple[Case, ...] = ()  # the same case at the smoke shapes
    extras: tuple[Case, ...] = ()  # other values and layouts, see `runner.op.extras`

    @property
    def checked(self) -> tuple[Case, ...]:
        """All that a variant may be checked on; `positions` are into this."""
        return (self.case, *self.smoke, *self.extras)

    def positions(self, entry: Entry) -> tuple[int, ...]:
        """Which of `checked` a variant is checked on: the interpreter is too slow for the case itself."""
        small = 1 + len(self.smoke)
        own = tuple(range(1, small)) if entry.interpreted else (0,)
        return own + tuple(small + extra for extra in entry.extras)


@dataclass(frozen=True)
class Plan:
    cases: tuple[PlannedCase, ...]
