"""What the worker remembers between requests: the device, the open case, the variants proven on it."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from runner.build import artifacts
from runner.build.sources import digest
from runner.build.variant import BuildError, Built, NotInstalled, StaleProcess, build
from runner.check import prove
from runner.check.exchange import Outbox, Part
from runner.measure import ceilings, environment, nvml, traps
from runner.measure.turns import clock_for, rule_for, take_turns
from runner.model import HOST, Entry, Measure, PlannedCase, Workload
from runner.process.faults import Tampered, log, place, said
from runner.profile.variant import profile_variant
from runner.profile.workload import profile_workload
from runner.worker.announcer import Announcer, wire
from runner.worker.state import State

_MANY = 50_000  # objects: beyond, what goes through all of them takes tens of milliseconds


class Session:
    """One method per request. `emit` sends an event to the parent; `ask` waits for the answer to it."""

    def __init__(self, answers: Any) -> None:
        self.emit, self.ask = answers.emit, answers.ask
        self.device = "cpu"
        self.clock: Any = None
        self.state: State | None = None
        self.facts: dict[str, Any] = {}
        self.card: nvml.Card | None = None
        self.no_card = ""  # why a GPU's state cannot be read
        self.planned: PlannedCase | None = None
        self.proofs: dict[int, prove.Proof] = {}
        self.modules: dict[int, str] = {}  # by entry
        self.cases: list[prove.OpenCase] = []
        self.way = HOST  # how the judge sees outputs
        self.judge = 0  # its process
        self._frozen = False  # whether objects that may yet become garbage are out of the collector's sight

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
        self.clock = clock_for(device)  # before any variant could change what it is made of
        self.state = State((self.clock,))
        gc.collect()
        gc.freeze()  # torch's hundred thousand objects stay: a collection is then short, also between trials
        return {"facts": facts}

    def offer(self, way: str, count: int) -> dict[str, Any]:
        """0, 1, 2 ... in memory that the judge may be able to see this way."""
        try:
            self._offered = Outbox(self.device, way, [Part((count,), torch.int64)])
            self._offered.put([torch.arange(count)])
        except RuntimeError as error:
            return {"place": {}, "why": said(error)}
        self._synchronize()
        return {"place": self._offered.place, "why": ""}

    def open(self, planned: PlannedCase, way: str) -> dict[str, Any]:
        """Take a case. Its inputs are made when a variant is proven."""
        self.close()
        self.planned, self.way = planned, way
        make = functools.partial(Outbox, self.device, way)
        self.cases = [prove.OpenCase(case, make) for case in planned.checked]
        return {}

    def close(self) -> None:
        """Let go of the case and its memory."""
        if self.planned is None:
            return
        if any(entry.variant.compile for entry in self.planned.entries):
            torch.compiler.reset()
        for one in self.cases:
            one.close()
        self.planned, self.proofs, self.cases = None, {}, []
        self.state.release()
        self._collect()
        if self.device != "cpu":
            torch.cuda.empty_cache()

    def _collect(self) -> None:
        """What is garbage now goes, also what was not looked at while the case was open."""
        if self._frozen:
            gc.unfreeze()
        gc.collect()
        if self._frozen:
            gc.freeze()
        self._frozen = False

    def _settle(self) -> None:
        """A compiler brings objects that stay when it is imported: no longer gone through, as torch's are."""
        if len(gc.get_objects()) > _MANY:
            gc.collect()
            gc.freeze()
            self._frozen = True

    def prove(self, index: int, keep: str, draws: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """Build one variant and check it. Answers with `status`, `stage`, `reason` and what was found."""
        entry = self.planned.entries[index]
        self.emit("step", index=None, stage="inputs", what="inputs")
        self._settle()
        for position, draw in draws.items():
            self.cases[position].draw(**draw)
        self._at = ""  # which case beside the timed one a variant is checked on
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
        self.modules[index] = built.module
        if changed := self.state.adopt():
            reason = f"changed global state: {changed}"
            return {"status": "wrong", "stage": "build", "reason": reason, "fatal": True}
        sha = digest(entry.variant)  # of what was just imported: the file may change while it is checked
        self.emit("step", index=index, stage="check", what="check")
        cases = {position: self.cases[position] for position in draws}
        return self._check(index, entry, built, Path(keep), cases) | {"source_sha": sha}

    def _check(self, index: int, entry: Entry, built: Built, keep: Path, cases: dict) -> dict[str, Any]:
        def judged(position: int, outbox: Outbox, call: str) -> bool:
            told = {"index": index, "position": position, "place": outbox.place, "fault": ""}
            return self.ask("output", **told, round=None, call=call)["right"]

        def announce(where: str) -> None:
            self._at = f"at {where}: " if where else ""
            self.emit("step", index=index, stage="check", what=f"check {where}".strip())

        try:
            with artifacts.capture(entry.variant, built) as captured:
                proof = prove.prove(cases, entry, built.fn, judged, announce)
        except NotImplementedError as refusal:
            sentence = str(refusal).strip() or "it says that it cannot do this case"
            return {"status": "skipped", "stage": "check", "reason": sentence}
        except BaseException as error:  # the variant's own code, whatever it raises
            return self._raised(error, "check")
        if changed := self.state.adopt() or self.state.changes(operators=True, own=built.module):
            reason = f"changed global state: {changed}"
            return proof.facts | {"status": "wrong", "stage": "check", "reason": reason, "fatal": True}
        kept = artifacts.collect(entry.variant, built, captured, keep)
        if not kept.files:
            with contextlib.suppress(OSError):  # somebody else's files are in it
                keep.rmdir()
        self.proofs[index] = proof
        if proof.trial:
            self.state.hold(proof.trial)
        spilled = kept.summary if " spilled " in kept.summary else ""
        notes = [*proof.facts.get("notes", ()), *filter(None, (kept.note, spilled))]
        return {**proof.facts, "build_ms": built.build_ms, "build_cached": built.cached, "notes": notes}

    def _raised(self, error: BaseException, stage: str) -> dict[str, Any]:
        """The verdict on a variant that raised, and whether the process survived it."""
        log(traceback.format_exception(error))
        answer = {"status": "error", "stage": stage, "reason": self._at + said(error) + place(error)}
        if isinstance(error, torch.OutOfMemoryError):
            answer["reason"] = "out of device memory: " + said(error).partition(": ")[2]
        del error
        gc.collect()
        return answer | {"fatal": not self._device_alive() or bool(self.state.changes(operators=True))}

    def _synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

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

    def measure(self, indices: list[int], how: Measure, judge: int, each: bool) -> dict[str, Any]:
        """Time the proven variants in turns: one `series` event each, and the card's state meanwhile.

        `each`: whether what every single call leaves behind is looked at.
        """
        self.judge = judge
        watch = Announcer(self, indices, how.timing, each)
        limits = (how.trials, how.precision, how.min_trials, how.max_trials, how.budget_s)
        rules = [rule_for(*limits) for _ in indices]
        trials = [self.proofs[i].trial for i in indices]
        try:
            series = take_turns(self.clock, trials, rules, how.timing, how.warmup, watch)
        except Tampered as found:
            return {"tampered": found.index, "reason": str(found)}
        for index, one in zip(indices, series):
            self.emit("series", index=index, **wire(one))
        return {
            "event_overhead_us": self.clock.event_overhead_us,
            "card": watch.card(),
            "checking_s": watch.checking_s,
            "timing_s": watch.timing_s,
        }

    def ceilings(self, refresh: bool) -> dict[str, Any]:
        """What this device can do, measured here or read from the cache."""
        self.emit("step", index=None, stage="measure", what="the device's ceilings")
        return {"ceilings": ceilings.ceilings(self.clock, self.device, self.facts, refresh)}

    def traps(self, index: int, mean_us: float) -> dict[str, Any]:
        """A timed variant again, in the wrong ways."""
        self.emit("step", index=index, stage="measure", what="traps")
        proof = self.proofs[index]
        first_ms = proof.facts["first_call_ms"]
        return {"readings": list(traps.readings(self.clock, proof.trial, first_ms, mean_us))}

    def profile(self, index: int, folder: str) -> dict[str, Any]:
        """A proven variant's call under the profiler; the traces are in `folder`."""
        self._at = ""
        self.emit("step", index=index, stage="profile", what="profile")
        try:
            facts = profile_variant(self.clock, self.device, self.proofs[index].trial, Path(folder))
        except BaseException as error:  # the variant's own code, whatever it raises
            return self._raised(error, "profile")
        return {"status": "ok", **facts}

    def workload(self, workload: Workload, seed: int, folder: str) -> dict[str, Any]:
        """A whole step, made here, under the profiler; the traces are in `folder`."""
        self.close()
        self.emit("step", index=None, stage="profile", what=workload.name)
        return profile_workload(workload, self.device, seed, Path(folder))
