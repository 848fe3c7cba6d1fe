"""What the worker remembers between requests: the device, the open case, the variants proven on it."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from runner import artifacts, ceilings, environment, prove
from runner.build import BuildError, Built, NotInstalled, StaleProcess, build
from runner.measure import Series, Watch, clock_for, take_turns
from runner.model import Entry, PlannedCase
from runner.worker import one_line


class Session:
    """One method per request. `emit(event, **fields)` sends an event to the parent."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self.emit = emit
        self.device = "cpu"
        self.clocks: dict[bool, Any] = {}
        self.copy_rates: dict[float, float] = {}
        self.planned: PlannedCase | None = None
        self.proofs: dict[int, prove.Proof] = {}
        self.cases: list[prove.OpenCase] = []
        self.smoke: list[prove.OpenCase] = []

    def hello(self, device: str, threads: int) -> dict[str, Any]:
        """Take a device; what it is."""
        self.device = device
        sys.dont_write_bytecode = True  # a .pyc is matched by whole seconds and size: too coarse for edits
        if threads:
            torch.set_num_threads(threads)
        if device != "cpu":
            torch.cuda.set_device(device)
        return {"facts": environment.worker_facts(device)}

    def open(self, planned: PlannedCase, seed: int) -> dict[str, Any]:
        """Take a case: its inputs are made now, its reference when it is first needed."""
        self.close()
        self.planned = planned
        try:
            definition = prove.definition_of(planned.case.reference)
        except StaleProcess:
            return {"status": "stale"}
        self.cases = [prove.OpenCase(planned.case, definition, seed)]
        self.smoke = [prove.OpenCase(case, definition, seed) for case in planned.smoke]
        if any(not entry.interpreted for entry in planned.entries):
            self.cases[0].draw()
        return {"status": "open"}

    def close(self) -> None:
        """Let go of the case and its memory."""
        self.planned, self.proofs, self.cases, self.smoke = None, {}, [], []
        gc.collect()
        torch.compiler.reset()
        if self.device != "cpu":
            torch.cuda.empty_cache()

    def prove(self, index: int, keep: str) -> dict[str, Any]:
        """Build one variant and check it. Answers with `status`, `stage`, `reason` and what was found."""
        entry = self.planned.entries[index]
        short = self._too_large(entry)
        if short:
            return {"status": "skipped", "stage": "", "reason": short}
        self.emit("step", index=index, stage="build", what="build")
        try:
            built = build(entry.variant, self.device, Path(keep))
        except NotInstalled as missing:
            return {"status": "skipped", "stage": "build", "reason": str(missing)}
        except StaleProcess:
            return {"status": "stale", "stage": "build", "reason": ""}
        except BuildError as error:
            return {"status": "error", "stage": "build", "reason": str(error)}
        except BaseException as error:  # the variant's own module, whatever it raises
            return self._raised(error, "build")
        self.emit("step", index=index, stage="check", what="check")
        return self._check(index, entry, built, Path(keep))

    def _check(self, index: int, entry: Entry, built: Built, keep: Path) -> dict[str, Any]:
        cases = self.smoke if entry.interpreted else self.cases
        try:
            with artifacts.capture(entry.variant, built) as captured:
                proof = prove.prove(cases, entry, built.fn)
        except NotImplementedError as refusal:
            return {"status": "skipped", "stage": "check", "reason": one_line(refusal).partition(": ")[2]}
        except BaseException as error:  # the variant's own code, whatever it raises
            return self._raised(error, "check")
        kept = artifacts.collect(entry.variant, built, captured, keep)
        if not kept.files:
            keep.rmdir()
        self.proofs[index] = proof
        notes = [text for text in (kept.note, kept.summary if " spilled " in kept.summary else "") if text]
        return {**proof.facts, "build_ms": built.build_ms, "build_cached": built.cached, "notes": notes}

    def _raised(self, error: BaseException, stage: str) -> dict[str, Any]:
        """The verdict on a variant that raised, and whether the device survived it."""
        trace = traceback.format_exc()
        print(trace, flush=True)
        answer = {"status": "error", "stage": stage, "reason": one_line(error), "traceback": trace}
        if isinstance(error, torch.OutOfMemoryError):
            answer["reason"] = "out of device memory: " + one_line(error).partition(": ")[2]
        del error
        gc.collect()
        return answer | {"fatal": not self._device_alive()}

    def _device_alive(self) -> bool:
        """False when the CUDA context is poisoned and only a new process helps."""
        if self.device == "cpu":
            return True
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        torch.cuda.empty_cache()
        return True

    def _too_large(self, entry: Entry) -> str:
        total = environment.memory_bytes(self.device)
        need = entry.memory_bytes
        if entry.interpreted or need <= 0.95 * total:
            return ""
        return f"needs {need / 1e9:.1f} GB, and {self.device} has {total / 1e9:.1f} GB"

    def measure(self, indices: list[int], trials: int, warmup: int, flush: bool, seed: int) -> dict[str, Any]:
        """Time the proven variants in turns; one `series` event each, and the copy rate for the case."""
        clock = self.clocks.setdefault(flush, None) or clock_for(self.device, flush)
        self.clocks[flush] = clock
        rate, note = self._copy_rate(clock)
        watch = _Announcer(self, indices)
        series = take_turns(clock, [self.proofs[i].trial for i in indices], trials, warmup, seed, watch)
        for index, one in zip(indices, series):
            self.emit("series", index=index, late=watch.late.get(index, ""), **_wire(one))
        return {"copy_gbps": rate, "event_overhead_us": clock.event_overhead_us, "note": note}

    def _copy_rate(self, clock) -> tuple[float | None, str]:
        case = self.planned.case
        total = int(case.read_bytes + case.write_bytes)
        if total == 0:
            return None, ""
        if total not in self.copy_rates:
            try:
                self.copy_rates[total] = ceilings.copy_gbps(clock, self.device, total)
            except torch.OutOfMemoryError:
                return None, "no room on the device to measure the copy rate at this size, so no limit"
        return self.copy_rates[total], ""


class _Announcer(Watch):
    """Tells the parent each step and checks each variant's last timed output."""

    def __init__(self, session: Session, indices: list[int]) -> None:
        self.session, self.indices, self.late = session, indices, {}

    def step(self, index: int, what: str) -> None:
        self.session.emit("step", index=self.indices[index], stage="measure", what=what)

    def output(self, index: int, output: Any) -> None:
        proof = self.session.proofs[self.indices[index]]
        reason = proof.recheck(output)
        if reason:
            self.late[self.indices[index]] = f"right when checked, wrong when timed: {reason}"


def _wire(series: Series) -> dict[str, Any]:
    samples = series.samples
    return {
        "rounds": series.rounds,
        "turns": series.turns,
        "start_ns": [s.start_ns for s in samples],
        "device_us": [s.device_us for s in samples],
        "host_us": [s.host_us for s in samples],
        "held": sum(s.held for s in samples),
        "end_to_end_us": series.end_to_end_us,
    }
