"""What the user sees while a run works: a bar on a terminal, plain lines elsewhere. On standard error."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from runner.columns import cell
from runner.model import Case, Plan, PlannedCase

_EVERY_S = 0.1  # how often a step may redraw: drawing must not disturb what is measured


def title(case: Case) -> str:
    """A case in one line: op, attributes, shape, dtype, direction, layout."""
    words = [case.op, *(f"{k}={cell(v)}" for k, v in case.attrs.items())]
    words += [f"{k}={v}" for k, v in case.shape.items()]
    words += [case.dtype, *([case.direction] if case.direction != "forward" else [])]
    return " ".join(words + ([case.layout] if case.layout != "contiguous" else []))


class Progress:
    """Counts rows. Used as a context manager around a run; `show=False` says nothing."""

    def __init__(self, plan: Plan, show: bool = True) -> None:
        self._console = Console(stderr=True, quiet=not show)
        self._total = sum(len(planned.entries) for planned in plan.cases)
        self._cases = {planned.case.case_id: i for i, planned in enumerate(plan.cases, 1)}
        self._bar = self._task = None
        self._done, self._drawn, self._case = 0, 0.0, ""

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._console.quiet:
            columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, TextColumn("{task.description}"), console=self._console, transient=True)
            self._task = self._bar.add_task("starting the worker", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, planned: PlannedCase, event: dict[str, Any]) -> None:
        """A variant is about to be built, checked or timed."""
        self._announce(planned)
        now = time.monotonic()
        if self._bar is not None and now - self._drawn > _EVERY_S:
            self._drawn = now
            name = "" if event["index"] is None else planned.entries[event["index"]].variant.name + ": "
            text = f"{self._place(planned)} | {name}{event['what']}"
            self._bar.update(self._task, description=escape(text))

    def row(self, planned: PlannedCase, row: dict[str, Any]) -> None:
        """A row is known."""
        self._announce(planned)
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
            return
        time_ms = f" {row['mean_ms']:.4g} ms" if row["mean_ms"] != "" else ""
        reason = f": {row['reason']}" if row["reason"] else ""
        self.say(f"  {row['variant']}{_params(row)} {row['status']}{time_ms}{reason}")

    def say(self, text: str) -> None:
        self._console.print(escape(text), highlight=False, soft_wrap=True)

    def _announce(self, planned: PlannedCase) -> None:
        """On plain output a case is a line of its own, once."""
        if self._bar is None and planned.case.case_id != self._case:
            self._case = planned.case.case_id
            self.say(self._place(planned))

    def _place(self, planned: PlannedCase) -> str:
        return f"[{self._cases[planned.case.case_id]}/{len(self._cases)}] {title(planned.case)}"


def _params(row: dict[str, Any]) -> str:
    return "".join(f" {k}={cell(v)}" for k, v in row["params"].items()) if row["params"] else ""
