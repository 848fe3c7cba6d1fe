"""What the worker remembers between requests: the device, the open case, the variants proven on it."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from runner import artifacts, ceilings, environment, nvml, prove, traps
from runner.build import BuildError, Built, NotInstalled, StaleProcess, build
from runner.measure import Series, Watch, clock_for, rule_for, take_turns
from runner.model import Entry, Measure, PlannedCase
from runner.worker import one_line


class Session:
    """One method per request. `emit(event, **fields)` sends an event to the parent."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self.emit = emit
        self.device = "cpu"
        self.clock: Any = None
        self.facts: dict[str, Any] = {}
        self.card: nvml.Card | None = None
        self.no_card = ""  # why a GPU's state cannot be read
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
        self.facts = facts = environment.worker_facts(device)
        if device != "cpu":
            self.card, self.no_card = nvml.open_card(facts["device_uuid"])
            facts["nvml"] = self.no_card or self.card.blind_spot((os.getpid(),)) or "reads this card"
        gc.collect()
        gc.freeze()  # torch's hundred thousand objects stay: a collection is then short, also between trials
        return {"facts": facts}

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
        if self.planned is None:
            return
        if any(entry.variant.compile for entry in self.planned.entries):
            torch.compiler.reset()
        self.planned, self.proofs, self.cases, self.smoke = None, {}, [], []
        gc.collect()
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
            return {
                "status": "skipped",
                "stage": "check",
                "reason": str(refusal).strip() or "it says that it cannot do this case",
            }
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
        print(traceback.format_exc(), flush=True)  # goes to the run's log, in mode=debug to the terminal too
        reason = said(error) + _place(error)
        answer = {"status": "error", "stage": stage, "reason": reason}
        if isinstance(error, torch.OutOfMemoryError):
            answer["reason"] = "out of device memory: " + said(error).partition(": ")[2]
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

    def measure(self, indices: list[int], how: Measure, seed: int) -> dict[str, Any]:
        """Time the proven variants in turns: one `series` event each, and the card's state meanwhile."""
        self.clock = self.clock or clock_for(self.device)
        clock = self.clock
        watch = _Announcer(self, indices)
        limits = (how.trials, how.precision, how.min_trials, how.max_trials, how.budget_s)
        rules = [rule_for(*limits) for _ in indices]
        trials = [self.proofs[i].trial for i in indices]
        series = take_turns(clock, trials, rules, how.timing, how.warmup, seed, watch)
        for index, one in zip(indices, series):
            self.emit("series", index=index, late=watch.late.get(index, ""), **_wire(one))
        return {"event_overhead_us": clock.event_overhead_us, "card": watch.card()}

    def ceilings(self, refresh: bool) -> dict[str, Any]:
        """What this device can do, measured here or read from the cache."""
        self.emit("step", index=None, stage="measure", what="the device's ceilings")
        self.clock = self.clock or clock_for(self.device)
        return {"ceilings": ceilings.ceilings(self.clock, self.device, self.facts, refresh)}

    def traps(self, index: int, mean_us: float) -> dict[str, Any]:
        """A timed variant again, in the wrong ways."""
        self.emit("step", index=index, stage="measure", what="traps")
        proof = self.proofs[index]
        first_ms = proof.facts["first_call_ms"]
        return {"readings": list(traps.readings(self.clock, proof.trial, first_ms, mean_us))}


def said(error: BaseException) -> str:
    """The error in one line; what autograd says of an op without a gradient, in words that help."""
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_GRADIENT):
        return (
            "autograd sees no way from the output to the inputs: register a gradient, or accept forward only"
        )
    return one_line(error)


_NO_GRADIENT = ("does not require grad", "to not have been used in the graph")


def _place(error: BaseException) -> str:
    """Where in the variant's own Python code it was raised, as ` (file.py:12)`; empty where it has none."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith("<")]
    runner = str(Path(__file__).resolve().parent)
    own = [f for f in inside if not f.filename.startswith((runner, sys.base_prefix))]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


class _Announcer(Watch):
    """Tells the parent each step and checks each variant's last timed output."""

    def __init__(self, session: Session, indices: list[int]) -> None:
        self.session, self.indices, self.late = session, indices, {}
        self.sampler = nvml.Sampler(session.card)
        self.sm_mhz: list[int | None] = []  # by round

    def step(self, index: int, what: str) -> None:
        self.session.emit("step", index=self.indices[index], stage="measure", what=what)

    def between_rounds(self, round_: int) -> None:
        state = self.sampler.sample(force=round_ == 0)
        self.sm_mhz.append(state.sm_mhz if state else self.sm_mhz[-1] if self.sm_mhz else None)

    def card(self) -> dict[str, Any]:
        """The card's state while it was measured: columns, samples and what is to be said."""
        card, own = self.session.card, (os.getpid(), os.getppid())
        notes = [self.session.no_card] if self.session.no_card else []
        if card is not None:
            notes += [f"the GPU is shared with {other}" for other in card.others(own)]
        told = {"sm_mhz_samples": self.sm_mhz, "throttle": self.sampler.throttle, "card_notes": notes}
        return self.sampler.columns() | told

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
        "stop_reason": series.stop_reason,
    }
