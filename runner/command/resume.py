"""`resume=<folder>`: what a killed or interrupted run or sweep had planned and did not come to."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runner import driver
from runner.command import lost
from runner.config.sentences import refuse
from runner.model import Refusal, Settings
from runner.record import planned

_WORD = "resume="


class Resume:
    """One command line: `outcomes` and `sweep` are then as those of `jobs.Run`."""

    def __init__(self, words: Sequence[str]) -> None:
        self.folder = _folder_of(words)
        self.outcomes: list[driver.Outcome] = []
        self.sweep: Path | None = None
        self.launcher = ""  # its jobs run in this process

    def carry_on(self) -> int:
        """Runs what is left. Raises Refusal where the folder cannot be carried on with."""
        kept = planned.read(self.folder)
        planned.refuse_changes(self.folder, planned.changes(kept))
        refusals = []
        with self._at_work(kept):
            jobs = {name: planned.settings_of(job) for name, job in kept["jobs"].items()}
            for number, (name, settings) in enumerate(jobs.items(), 1):
                try:
                    label = f"job {number}/{len(jobs)}" if self.sweep else ""
                    self.outcomes.append(self._job(settings, name, label))
                except Refusal as refusal:  # a disk that is full for one may take another
                    refusals.append(str(refusal))
        refuse(refusals)
        if not any(outcome.fresh for outcome in self.outcomes):
            rows = sum(len(outcome.rows) for outcome in self.outcomes)
            print(f"runner: nothing is left to do in {self.folder}: it has all {rows} rows", file=sys.stderr)
        return 0

    @contextlib.contextmanager
    def _at_work(self, kept: dict[str, Any]) -> Iterator[None]:
        """Where the run was started, a sweep's folder held."""
        if kept["sweep"] and not kept["jobs"]:
            raise Refusal(
                f"{_WORD}{self.folder}: its sweeper chose jobs as it went, so nobody knows what is left"
            )
        if not Path(kept["from"]).is_dir():
            raise Refusal(f"{_WORD}{self.folder}: it was started in {kept['from']}, which is gone")
        self.sweep = self.folder if kept["sweep"] else None
        with contextlib.ExitStack() as stack:
            if self.sweep:
                stack.enter_context(planned.in_use(self.folder))
            stack.enter_context(contextlib.chdir(kept["from"]))
            yield

    def _job(self, settings: Settings, name: str, label: str) -> driver.Outcome:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        outcome = driver.carry_on(settings, folder, alone=not self.sweep, label=label)
        lost.forget(folder)
        return outcome


def _folder_of(words: Sequence[str]) -> Path:
    """The one folder that is named. Raises Refusal where anything else is said."""
    own = [word for word in words if word.startswith(_WORD)]
    others = [word for word in words if word not in own]
    if len(own) > 1:
        raise Refusal(f"{own[1]}: one folder at a time")
    if others:
        raise Refusal(f"{own[0]} repeats what its own command line said: leave out {' '.join(others)}")
    name = own[0].removeprefix(_WORD)
    if not name:
        raise Refusal(f"{_WORD}: name the folder of a run or of a sweep")
    return Path(name).expanduser().absolute()
