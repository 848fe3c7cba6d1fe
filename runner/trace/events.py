"""What a trace consists of: operators, calls of the runtime, activities on the device, lines of the user's.

Times are microseconds on the trace's own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW, LINE = "runner: ", "@"
_OVERWRITES = ("aten::copy_", "aten::fill_", "aten::zero_", "aten::_foreach_copy_", "aten::_foreach_zero_")
SYNCS = (
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",  # not cudaMemcpyAsync, which torch follows with a synchronize where it has to
    "cudaFree",
    "cudaFreeHost",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
)


@dataclass(eq=False)
class Op:
    """One operator call on the host. `label` is the user's stack; `phase` one of PHASES."""

    name: str
    start: float
    end: float
    thread: Any
    parent: Op | None
    sequence: int | None
    tensors: tuple[tuple[int, int], ...]  # (distinct elements, bytes each) of its tensor arguments
    dims: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    first: int = 1  # of `tensors`, how many are its first argument
    fills_last: bool = (
        False  # writes its last tensor argument, as the kernels that torch.compile generates do
    )
    label: str = ""
    phase: str = "forward"
    window: str = ""
    node: Op | None = None  # the autograd node that it runs in
    forward: Op | None = None  # of a node: the operator that made it
    children_us: float = 0.0
    allocated: float = 0.0  # bytes
    launched: int = 0

    @property
    def host_us(self) -> float:
        return self.end - self.start

    @property
    def self_us(self) -> float:
        return self.host_us - self.children_us

    @property
    def read_bytes(self) -> float:
        """Of its tensor arguments, as far as shapes were recorded; an expanded dim counts once."""
        own = self.tensors[self.first :] if self.name in _OVERWRITES else self.tensors
        return float(sum(count * size for count, size in ((own[:-1] or own) if self.fills_last else own)))

    @property
    def written_bytes(self) -> float:
        """What it allocated; where it allocated nothing it wrote into its first argument, or its last."""
        into = self.tensors[-1:] if self.fills_last else self.tensors[: self.first]
        return self.allocated or float(sum(count * size for count, size in into))


PHASES = ("forward", "backward", "optimizer", "data")


@dataclass(eq=False)
class Call:
    """One call into the CUDA runtime or driver."""

    name: str
    start: float
    end: float
    thread: Any
    correlation: int | None
    op: Op | None
    label: str = ""
    phase: str = "forward"
    window: str = ""

    @property
    def synchronizes(self) -> bool:
        return self.name.partition("_v")[0] in SYNCS


@dataclass(eq=False)
class Activity:
    """A kernel, a copy or a fill on the device."""

    kind: str  # kernel | memcpy | memset
    name: str
    start: float
    end: float
    stream: Any
    correlation: int | None
    args: Mapping[str, Any]
    launch: Call | None = None

    @property
    def us(self) -> float:
        return self.end - self.start

    @property
    def window(self) -> str:
        return self.launch.window if self.launch else ""


@dataclass(frozen=True)
class Line:
    """A line of the user's while it ran; what it called lies inside."""

    label: str
    start: float
    end: float
    window: str

    @property
    def us(self) -> float:
        return self.end - self.start


@dataclass
class Trace:
    """Everything in order of start. `windows` are the runner's spans by name: (start, end)."""

    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    loads: list[Line] = field(default_factory=list)  # waits for a loader's next batch
    dropped: int = 0  # kernels without a launch, where there were launches

    def of(self, window: str) -> tuple[list[Op], list[Call], list[Activity]]:
        """What was issued in a window."""
        own = [[each for each in some if each.window == window] for some in (self.ops, self.calls)]
        activities = [each for each in self.activities if each.window == window]
        return own[0], own[1], activities

    def names(self, prefix: str) -> list[str]:
        """Windows whose name begins with `prefix`, in time order."""
        found = [name for name in self.windows if name.startswith(prefix)]
        return sorted(found, key=lambda name: self.windows[name][0])
