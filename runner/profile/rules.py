"""The rules of triage: the first that fits an operation is its constraint and its lever. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.profile.levers import Measured
from runner.trace.costs import is_product, row_sizes
from runner.trace.operations import Operation

WORTH_PERCENT = 3.0  # of the step: what gains less is left alone
NEAR_PERCENT = 75.0  # of the roofline: what is nearer is left alone
BUSY_PERCENT = 90.0  # a device that works less of the step than this waits for its host
TILE = 64  # of matrix products on tensor cores: a multiple of it wastes nothing
PYTHON_SHARE = 0.5  # of the host's time outside operators and launches: then Python is what is slow

# What the naive forms look like, by the operators of their forward: all of `all_of`, one of each of `any_of`.
PATTERNS = (
    ("attention", {"sum"}, ({"exp", "softmax"}, {"matmul", "bmm"})),
    ("gelu", {"mul", "add"}, ({"tanh", "erf"},)),
    ("softmax", {"exp", "sum", "div"}, ()),
    ("layer_norm", {"mean"}, ({"rsqrt", "sqrt"}, {"sub", "var"})),
)
LIBRARY = {
    "attention": "torch.nn.functional.scaled_dot_product_attention",
    "gelu": "torch.nn.functional.gelu",
    "softmax": "torch.softmax",
    "layer_norm": "torch.nn.functional.layer_norm",
}


@dataclass(frozen=True)
class Step:
    """What is known of the step as a whole. Microseconds; `on_gpu` False: device times are the host's."""

    step_us: float
    device_us: float  # the sum of its operations
    busy_us: float  # of the device, a step
    host_us: float  # until the host had enqueued it
    python_us: float  # of that, outside operators and launches
    kernels: int
    on_gpu: bool

    @property
    def busy_percent(self) -> float:
        return 100 * self.busy_us / self.step_us if self.step_us else 0.0

    @property
    def bound(self) -> str:
        """host or device: which of the two the other waits for."""
        if not self.on_gpu:
            return "host"
        return "device" if self.busy_percent >= BUSY_PERCENT else "host"


@dataclass(frozen=True)
class Finding:
    """One operation with all that a rule may ask of it."""

    operation: Operation
    step: Step
    share_percent: float
    limit_us: float
    roof: str  # memory | compute
    percent: float | None
    pattern: str
    measured: Measured | None
    waited_us: float  # that the device stood still at a synchronize of its lines

    @property
    def kind(self) -> str:
        return self.operation.kind

    @property
    def kernels_per_call(self) -> float:
        return self.operation.kernels / max(len(self.operation.instances), 1)

    @property
    def parts_per_call(self) -> float:
        """Kernels; on a CPU operators."""
        some = self.operation.instances
        return (
            self.kernels_per_call
            if self.step.on_gpu
            else sum(len(one.ops) for one in some) / max(len(some), 1)
        )

    @property
    def waits_for_host(self) -> bool:
        return self.step.on_gpu and self.step.bound == "host"

    @property
    def worth_us(self) -> float:
        """Below, a gain is not worth the work."""
        return WORTH_PERCENT / 100 * self.step.step_us

    @property
    def most_us(self) -> float:
        """That can be saved of the step at all."""
        own = self.operation.us if self.kind == "copy" else max(self.operation.us - self.limit_us, 0.0)
        return own + self.waited_us


@dataclass(frozen=True)
class Rule:
    constraint: (
        str  # memory | compute | launch | Python on the host | sync | data | communication; "" is the roof
    )
    when: Callable[[Finding], bool]
    lever: str
    reason: str
    saves_us: Callable[[Finding], float]


def _nothing(f: Finding) -> float:
    return 0.0


def _to_the_limit(f: Finding) -> float:
    return f.most_us


def _as_measured(f: Finding) -> float:
    """The times of forward and backward at the measured ratios; what was not measured stays."""
    one, operation = f.measured, f.operation
    back = operation.phase_us("backward")
    return (operation.us - back) * (1 - 1 / one.forward) + back * (1 - 1 / (one.backward or 1.0))


def _launches(f: Finding) -> float:
    """The host's part for its kernels, if one kernel a call did for all of them."""
    part = f.operation.kernels / max(f.step.kernels, 1)
    return (f.step.host_us - f.step.python_us) * part * (1 - 1 / max(f.kernels_per_call, 1.0))


# Read from the top; the first that fits decides.
RULES = (
    Rule(
        "",
        lambda f: f.share_percent < WORTH_PERCENT and f.waited_us < f.worth_us,
        "nothing",
        "under {worth:g} % of the step: even for nothing it would gain less",
        _nothing,
    ),
    Rule(
        "communication",
        lambda f: f.kind == "communication",
        "overlap or bucket the collective",
        "it is a transfer between devices",
        _nothing,
    ),
    Rule(
        "data",
        lambda f: f.kind == "copy" and "HtoD" in f.operation.name,
        "pinned memory, non_blocking, more loader workers",
        "it is a copy from the host that the step waits for",
        lambda f: f.operation.us,
    ),
    Rule(
        "data",
        lambda f: f.kind == "loader",
        "more loader workers, prefetch",
        "the step waits for its loader",
        lambda f: f.operation.us + f.waited_us,
    ),
    Rule(
        "sync",
        lambda f: f.waited_us >= f.worth_us,
        "leave the synchronize out, or do it each 100 steps",
        "the device stands still while the host looks at a value",
        lambda f: f.waited_us,
    ),
    Rule(
        "data",
        lambda f: f.kind == "copy",
        "leave it on the device, or copy it less often",
        "it is a copy to the host",
        lambda f: f.operation.us,
    ),
    Rule(
        "",
        lambda f: f.measured is not None,
        "{measured.op} variant={measured.variant}",
        "{measured.forward:.2f}x forward, {backward} in {measured.table}",
        _as_measured,
    ),
    Rule(
        "",
        lambda f: bool(f.pattern),
        "library call: {library}",
        "it is a naive {pattern}: {kernels:.3g} {units} a call where one would do",
        _to_the_limit,
    ),
    Rule(
        "Python on the host",
        lambda f: f.waits_for_host and f.step.python_us > PYTHON_SHARE * f.step.host_us,
        "torch.compile, or less Python a step",
        "the device waits for Python between the operators",
        _launches,
    ),
    Rule(
        "launch",
        lambda f: f.waits_for_host and f.kernels_per_call > 1,
        "torch.compile, or a CUDA graph",
        "the device waits for the host's launches: {kernels:.3g} a call",
        _launches,
    ),
    Rule(
        "launch",
        lambda f: f.waits_for_host,
        "a CUDA graph of the step, or a larger batch",
        "the device waits for the host's launches",
        _nothing,
    ),
    Rule(
        "",
        lambda f: f.kind == "optimizer" and f.most_us > f.worth_us,
        "fused=True",
        "{percent} of the roofline: its kernels read the states again and again",
        _to_the_limit,
    ),
    Rule(
        "",
        lambda f: f.kind == "chain" and f.parts_per_call > 1 and f.most_us >= f.worth_us,
        "fusion: torch.compile, or one kernel",
        "{kernels:.3g} {units} a call, each a trip to memory",
        _to_the_limit,
    ),
    Rule(
        "",
        lambda f: f.percent is not None and f.percent >= NEAR_PERCENT,
        "nothing",
        "{percent} of the roofline: only less work would help",
        _nothing,
    ),
    Rule(
        "",
        lambda f: f.kind == "compiled",
        "nothing",
        "it is what torch.compile made",
        _nothing,
    ),
    Rule(
        "compute",
        lambda f: f.kind == "product" and f.step.on_gpu and f.roof == "compute" and _is_float32(f),
        "TF32 or bfloat16",
        "float32 products do not use the tensor cores",
        _to_the_limit,
    ),
    Rule(
        "",
        lambda f: f.most_us < f.worth_us,
        "nothing",
        "the roofline leaves less than {worth:g} % of the step to gain",
        _nothing,
    ),
    Rule(
        "",
        lambda f: f.kind in ("product", "attention") and _is_ragged(f),
        "sizes that are multiples of {tile}",
        "{percent} of the roofline: its sizes leave a part of each tile of the library's kernel empty",
        _nothing,
    ),
    Rule(
        "",
        lambda f: f.kind in ("product", "attention"),
        "nothing",
        "{percent} of the roofline, in a library's kernel and at sizes that suit it",
        _nothing,
    ),
    Rule("", lambda f: True, "a custom kernel", "{percent} of the roofline", _to_the_limit),
)


def _is_ragged(f: Finding) -> bool:
    ops = (op for one in f.operation.instances for op in one.ops if is_product(op))
    return any(size % TILE for op in ops for size in row_sizes(op))


def _is_float32(f: Finding) -> bool:
    return any("float" in op.dtypes[:1] for one in f.operation.instances for op in one.ops)


def pattern_of(operation: Operation) -> str:
    """The naive form that an operation is; empty for none."""
    if operation.kind not in ("chain", "attention"):
        return ""
    own = operation.operators
    for name, all_of, any_of in PATTERNS:
        if all_of <= own and all(own & some for some in any_of):
            return name
    return ""
