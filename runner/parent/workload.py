"""A run of `mode=profile workload=..`: its forms checked, its step profiled, judged, compared. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.files import canonical, write_csv
from runner.measure import roofline
from runner.measure.roofline import limit
from runner.model import PlannedCase, Refusal, Settings
from runner.parent import seeds
from runner.process import device_lock
from runner.process.supervisor import Worker, WorkerFailed, WorkerLost
from runner.profile import before_after, levers, nsight, rules, triage
from runner.profile.replay import Request
from runner.profile.step import STEP_COLUMNS, Profiled
from runner.record.columns import FAILED
from runner.trace import operations, operators, timeline
from runner.trace.operations import Operation

OPERATION_COLUMNS = (*triage.COLUMNS, "pattern")
_UNITS = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64", "float": "fp32_matmul"}


class WorkloadRun:
    """`run` is the driver's: it has the worker, the record and the progress."""

    def __init__(self, run: Any, checks: Sequence[PlannedCase]) -> None:
        self.run, self.checks = run, checks
        self.settings: Settings = run.settings
        self.folder: Path = run.record.folder

    def finish(self) -> None:
        """Checks, profiles and writes the tables; a form that is wrong leaves no profile.

        Raises Refusal where the step cannot be made or run.
        """
        self._check()
        if any(row["status"] in FAILED for row in self.run.record.rows):
            self.run.progress.say("the step is not profiled: a form of it is wrong")
            return
        try:
            worker = self.run.worker()
            key, device = device_lock.key_of(worker.facts["device_uuid"]), self.settings.device
            with device_lock.held(key, device, self.run.progress.say, self.settings.command):
                ceilings = self.run.ceilings(worker)
                answer = self._profile(worker)
        except (WorkerLost, WorkerFailed) as failed:
            self.run.replace_worker()
            name = self.settings.workload.name
            raise Refusal(
                f"workload {name} cannot be profiled: {failed.reason}; see {self.folder}/run.log"
            ) from failed
        self.run.replace_worker()  # a step may have left anything behind: it seeds torch, say
        self._write(answer, ceilings, worker.facts)

    def _check(self) -> None:
        whole = self.run.settings
        self.run.settings = dataclasses.replace(whole, mode="check")
        self.run.cases(self.checks)
        self.run.settings = whole

    def _profile(self, worker: Worker) -> dict[str, Any]:
        self.run.progress.say(f"{self.settings.workload.name}: a step under the profiler")
        arguments = {"workload": _plain_forms(self.settings.workload), "seed": self._seed()}
        return worker.ask("workload", folder=str(self.folder), **arguments)

    def _seed(self) -> int:
        """Of the step's own draws: not the run's, which is kept from variants."""
        return seeds.of_draw(self.settings.seed, self.settings.workload.name, 0) % 2**31

    def _write(self, answer: dict[str, Any], ceilings: dict[str, Any], facts: dict[str, Any]) -> None:
        on_gpu = self.settings.device != "cpu"
        profile = Profiled(self.folder, answer, on_gpu)
        some = profile.operations
        step = profile.step()
        findings = [self._finding(each, step, profile, ceilings, facts) for each in some]
        rows = [row | {"pattern": f.pattern} for row, f in zip(triage.table(findings), findings)]
        write_csv(self.folder / "operations.csv", OPERATION_COLUMNS, rows)
        row = profile.step_row(step) | {"conclusion": triage.conclusion(rows, step), **self._identity(facts)}
        self.run.record.table("steps.csv", STEP_COLUMNS, [row])
        if timeline.available():
            last, title = profile.windows[-1], f"{self.settings.workload.name}: one step"
            timeline.draw(profile.plain, {last: title}, self.folder / "timeline.png")
        if self.settings.profiler != "torch":
            self._external(profile)
        if self.settings.before:
            self._compare(rows, row, facts)

    def _external(self, profile: Profiled) -> None:
        """An outside profiler on one step."""
        settings, record = self.settings, self.run.record
        workload = _plain_forms(settings.workload)
        request = Request(
            run_id=record.run_id,
            device=settings.device,
            seed=self._seed(),
            keep=str(self.folder / "replay"),
            title=workload.name,
            workload=workload,
        )
        kernels = {workload.name: nsight.picked(operators.kernel_rows(profile.units))}
        limit_s = settings.limits.profile_s
        for sentence in nsight.run(settings.profiler, self.folder, request, kernels, limit_s):
            self.run.progress.say(sentence)

    def _identity(self, facts: dict[str, Any]) -> dict[str, Any]:
        workload = self.settings.workload
        return {
            "run_id": self.run.record.run_id,
            "workload": workload.name,
            "forms": {form.argument: form.variant.name for form in workload.forms},
            "args": workload.args,
            "compile": workload.compile,
            "device": facts["device_name"],
            "seed": self.settings.seed,
        }

    def _finding(self, one: Operation, step: rules.Step, profile: Profiled, ceilings, facts) -> rules.Finding:
        limit_us, roof = operations.limit_us(one, lambda *amounts: _time(ceilings, profile, *amounts))
        pattern = rules.pattern_of(one)
        waited = sum(row["idle_us"] for row in profile.syncs if _belongs(row, one))
        waited += profile.loader[1] if one.kind == "loader" and profile.on_gpu else 0.0
        return rules.Finding(
            operation=one,
            step=step,
            share_percent=100 * one.us / step.device_us if step.device_us else 0.0,
            limit_us=limit_us,
            roof=roof or "memory",
            percent=100 * limit_us / one.us if one.us and limit_us else None,
            pattern=pattern,
            measured=self._measured(pattern, one, facts) if pattern else None,
            waited_us=waited,
        )

    def _measured(self, pattern: str, one: Operation, facts: dict, among: Sequence[str] = ()) -> Any:
        first = next((each for each in one.instances if not each.backward), one.instances[0])
        least = [amounts for each, amounts in zip(one.instances, one.least()) if each is first]
        moved = sum(least[0][:2]) if least else 0.0
        return self._best(pattern, facts, moved, among)

    def _best(self, pattern: str, facts: dict, moved: float, among: Sequence[str] = ()) -> Any:
        dtype = self.settings.workload.args.get("dtype", "float32")
        output = Path(self.settings.output)
        return levers.best(pattern, facts["device_name"], dtype, moved, output, among)

    def _compare(self, rows: list[dict[str, Any]], step: dict[str, Any], facts: dict[str, Any]) -> None:
        folder = Path(self.settings.before)
        olds, old_step = (
            before_after.read(folder, "operations.csv"),
            before_after.read(folder, "steps.csv")[0],
        )
        new_step = {name: canonical(v) if isinstance(v, dict) else v for name, v in step.items()}
        changes = before_after.changes(old_step, new_step)
        predicted = {}
        for name, (_, now) in changes.items():
            found = self._predicted(name, now, olds, facts)
            if found is not None:
                predicted[name] = found
        table = before_after.compared(olds, rows, (old_step, new_step), predicted)
        write_csv(self.folder / "before_after.csv", before_after.COLUMNS, table)

    def _predicted(self, name: str, now: str, olds: Sequence[dict[str, str]], facts: dict) -> float | None:
        """Microseconds that a change was to save, from the profile before it and the tables."""
        rows = [row for row in olds if row["pattern"] == name]
        if name == "compile":
            rows = [row for row in olds if row["pattern"] or "torch.compile" in row["lever"]]
            return sum(float(row["predicted_saving_us"]) for row in rows)
        total = 0.0
        for row in rows:
            moved = float(row["limit_us"] or 0)
            one = self._best(name, facts, moved, (now,))
            if one is None:
                total += float(row["predicted_saving_us"])
                continue
            back = float(row["backward_us"])
            total += (float(row["device_us"]) - back) * (1 - 1 / one.forward) + back * (
                1 - 1 / (one.backward or 1.0)
            )
        return total if rows else None


def _plain_forms(workload: Any) -> Any:
    """Without the ops: the worker has no use for them."""
    forms = tuple(dataclasses.replace(form, op=None) for form in workload.forms)
    return dataclasses.replace(workload, forms=forms)


def _belongs(sync: dict[str, Any], one: Operation) -> bool:
    return bool(one.where) and sync["place"] == one.where


def _time(ceilings: dict[str, Any], profile: Profiled, read: float, written: float, flops: float, dtype: str):
    """(microseconds, what bounds them) of one call of an operation, by the device's ceilings."""
    unit = "tf32" if dtype == "float" and profile.tf32 else _UNITS.get(dtype, "fp32")
    one = limit(read, written, flops, unit, 1.0, ceilings)
    floor = roofline.floor_us(ceilings) if one.ms and profile.on_gpu else 0.0
    return max(one.ms * 1e3, floor), one.bound
