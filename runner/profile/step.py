"""What the traces of a step say, before anything is judged. No torch."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from runner.files import write_csv
from runner.model import Refusal
from runner.profile.case import DETAIL, LOOP, PLAIN
from runner.profile.rules import Step
from runner.trace import operations, operators, overlap, reading, syncs
from runner.trace.events import PHASES, Trace

STEP, PLACE = "step ", "step 0"
LOOPS = 3  # steps in the window of the loop
_ADDS_UP_PERCENT = 1.0
STEP_COLUMNS = tuple(
    "run_id,workload,forms,args,compile,device,seed,step_us,host_us,end_to_end_us,device_us,busy_us,busy_percent,"
    "bound,forward_us,backward_us,optimizer_us,data_us,loader_us,loader_idle_us,python_us,kernels,launch_us,syncs,sync_host_us,sync_idle_us,"
    "idle_us,longest_gap_us,ahead_us,waited_percent,shares_add_up_to_percent,conclusion,note".split(",")
)


class Profiled:
    """The tables of one step; `folder` gets operators.csv, kernels.csv and syncs.csv."""

    def __init__(self, folder: Path, answer: dict[str, Any], on_gpu: bool) -> None:
        self.on_gpu, self.wall, self.tf32 = on_gpu, answer["wall"], answer["tf32"]
        self.plain, detail = (reading.read(reading.load(folder / name)) for name in (PLAIN, DETAIL))
        self.windows = self.plain.names(STEP)
        self.units, self.note = operators.units(self.plain, detail, self.windows, PLACE, on_gpu)
        if on_gpu and not self.units:
            raise Refusal("the profiler saw no kernel of a step on a GPU")
        self.factor = 1.0 if on_gpu else self.wall["step_us"] / self._host_window_us()
        for unit in self.units:
            unit.us *= self.factor
        self.faults = overlap.faults(self.plain, self.windows)
        self.operations = operations.grouped([*self.units, *self._loader(detail)])
        self.syncs = syncs.found(self.plain, detail, self.windows, PLACE, answer["witness"], LOOP)
        rows = operators.operator_rows(self.plain, self.windows, self.units)
        rows += operators.python_rows(detail, PLACE)
        write_csv(folder / "operators.csv", operators.OPERATOR_COLUMNS, rows)
        write_csv(folder / "kernels.csv", operators.KERNEL_COLUMNS, operators.kernel_rows(self.units))
        write_csv(folder / "syncs.csv", syncs.COLUMNS, self.syncs)

    def _loader(self, detail: Trace) -> list[operators.Unit]:
        """The wait for a DataLoader as a unit: on a CPU what of it no operator explains."""
        loads = [each for each in detail.loads if each.window == PLACE]
        if not loads:
            return []
        us = 0.0
        if not self.on_gpu:
            waits = [overlap.loading(self.plain, window)[0] for window in self.windows]
            own = sum(unit.us for unit in self.units if unit.phase == "data")
            us = max(self.factor * sum(waits) / len(waits) - own, 0.0)
        return [operations.loader(loads[0].label, us)]

    @property
    def device_us(self) -> float:
        return sum(each.us for each in self.operations)

    @cached_property
    def loader(self) -> tuple[float, float]:
        """Of a step among others: what the host waits for its loader, and the device stands still for it."""
        waited, idle = overlap.loading(self.plain, LOOP)
        return waited / LOOPS, idle / LOOPS

    def busy_us(self) -> float:
        """Of the device (on the CPU: of the step), a step."""
        if not self.on_gpu:
            return self.wall["step_us"]
        return sum(overlap.overlap(self.plain, w).busy_us for w in self.windows) / len(self.windows)

    def _host_window_us(self) -> float:
        spans = [self.plain.windows[window] for window in self.windows]
        return sum(end - start for start, end in spans) / len(spans)

    def python_us(self) -> float:
        """Host time of a step outside operators and runtime calls, scaled to a step without the profiler."""
        outside = sum(overlap.host_parts(self.plain, window)[2] for window in self.windows)
        whole = self._host_window_us() * len(self.windows)
        return self.wall["host_us"] * outside / whole if whole else 0.0

    def step(self) -> Step:
        return Step(
            step_us=self.wall["step_us"],
            device_us=self.device_us,
            busy_us=self.busy_us(),
            host_us=self.wall["host_us"],
            python_us=self.python_us(),
            kernels=sum(unit.activity is not None for unit in self.units),
            on_gpu=self.on_gpu,
        )

    def step_row(self, step: Step) -> dict[str, Any]:
        loop = overlap.overlap(self.plain, LOOP)
        phases = operations.split(self.operations, PHASES)
        adds_up = 100 * self.device_us / step.busy_us if step.busy_us else 0.0
        return {
            **self.wall,
            "device_us": step.device_us,
            "busy_us": step.busy_us,
            "busy_percent": step.busy_percent if self.on_gpu else "",
            "bound": step.bound,
            **{f"{phase}_us": us for phase, us in phases.items()},
            "loader_us": self.loader[0],
            "loader_idle_us": self.loader[1] if self.on_gpu else "",
            "python_us": step.python_us,
            "kernels": step.kernels if self.on_gpu else "",
            "launch_us": loop.launch_us / LOOPS if self.on_gpu else "",
            "syncs": sum(row["count"] for row in self.syncs) if self.on_gpu else "",
            "sync_host_us": sum(row["host_us"] for row in self.syncs) if self.on_gpu else "",
            "sync_idle_us": sum(row["idle_us"] for row in self.syncs) if self.on_gpu else "",
            "idle_us": loop.idle_us / LOOPS if self.on_gpu else "",
            "longest_gap_us": max((gap.us for gap in loop.gaps), default=0.0) if self.on_gpu else "",
            "ahead_us": loop.ahead_us if self.on_gpu else "",
            "waited_percent": 100 * loop.waited / max(loop.launches, 1) if self.on_gpu else "",
            "shares_add_up_to_percent": adds_up,
            "note": "; ".join(filter(None, [self.note, *self.faults, self._adds_up_note(adds_up)])),
        }

    def _adds_up_note(self, percent: float) -> str:
        if not self.on_gpu or abs(percent - 100) <= _ADDS_UP_PERCENT:
            return ""
        return f"kernels overlap: their times add up to {percent:.1f} % of the device's busy time"
