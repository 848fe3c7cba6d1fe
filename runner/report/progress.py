"""What the user sees while a run works: each row as it is known, and on a terminal a bar below them.

On standard error; the tables go to standard output when the run is done.
"""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column
from rich.text import Text

from runner.model import Case, Plan, PlannedCase
from runner.report import cells

_EVERY_S = 0.1  # how often a step of the same stage may redraw: drawing must not disturb what is measured
COLOURS = {"ok": "green", "checked": "green", "skipped": "dim"}  # others: red


def title(case: Case) -> str:
    """A case in one line: op, attributes, shape, dtype, direction, layout."""
    return cells.title(case.op, case.attrs, case.shape, case.dtype, case.direction, case.layout)


class Progress:
    """Counts rows. Used as a context manager around a run; `show=False` says nothing.

    `label` names this run among others, `job 2/4` in a sweep. Without `bar` there are only lines, also on a
    terminal: for runs whose worker writes there too. `done` rows are there already.
    """

    def __init__(
        self, plan: Plan, show: bool = True, label: str = "", bar: bool = True, done: int = 0
    ) -> None:
        self._console = Console(stderr=True, quiet=not show)
        self._label, self._wanted = label, bar
        self._total = sum(len(planned.entries) for planned in plan.cases)
        self._cases = {planned.case.case_id: i for i, planned in enumerate(plan.cases, 1)}
        self._bar = self._task = None
        self._done, self._drawn, self._stage, self._case = done, 0.0, "", ""

    def __enter__(self) -> Progress:
        if self._wanted and self._console.is_terminal and not self._console.quiet:
            self._bar = _bar(self._console)
            self._task = self._bar.add_task(
                self._words("starting the worker"), total=self._total, completed=self._done
            )
            self._bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, planned: PlannedCase, event: dict[str, Any]) -> None:
        """A variant is about to be built, checked or timed."""
        self._announce(planned)
        now = time.monotonic()
        if self._bar is None or (event["stage"] == self._stage and now - self._drawn < _EVERY_S):
            return
        self._drawn, self._stage = now, event["stage"]
        name = "" if event["index"] is None else planned.entries[event["index"]].variant.name + ": "
        self._bar.update(self._task, description=self._words(name + event["what"], planned))

    def row(self, planned: PlannedCase, row: dict[str, Any]) -> None:
        """A row is known: it is printed at once, above the bar where there is one."""
        self._announce(planned)
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        self._print(_line(row))

    def say(self, text: str) -> None:
        self._print(Text(text))

    def _print(self, text: Text) -> None:
        if not self._console.quiet:  # it would lay the words out and then drop them
            self._console.print(text, soft_wrap=True)

    def _announce(self, planned: PlannedCase) -> None:
        """A case is a line of its own, once."""
        if planned.case.case_id != self._case:
            self._case = planned.case.case_id
            self._print(Text(self._words(title(planned.case), planned), style="bold"))

    def _words(self, text: str, planned: PlannedCase | None = None) -> str:
        place = f"[{self._cases[planned.case.case_id]}/{len(self._cases)}]" if planned else ""
        return " ".join(filter(None, [self._label, place, text]))


def _bar(console: Console) -> Bar:
    """Only the description gives way when the terminal is narrow."""
    fixed = Column(no_wrap=True)
    return Bar(
        BarColumn(16, table_column=fixed.copy()),
        MofNCompleteColumn(table_column=fixed.copy()),
        TimeElapsedColumn(table_column=fixed.copy()),
        TimeRemainingColumn(table_column=fixed.copy()),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        transient=True,
        expand=True,
        refresh_per_second=4,
    )


def _line(row: dict[str, Any]) -> Text:
    """Variant, verdict, time, and the reason with all its lines."""
    name = " ".join([row["variant"], *cells.pairs(row["params"] or {})])
    status = row["status"]
    failed = f" at {row['stage']}" if row["stage"] and status not in COLOURS else ""
    time_ms = f" {cells.milliseconds(str(row['mean_ms']))}" if row["mean_ms"] != "" else ""
    reason = ": " + str(row["reason"]).replace("\n", "\n      ") if row["reason"] else ""
    return Text.assemble(f"  {name} ", (status + failed, COLOURS.get(status, "red")), time_ms + reason)
