"""The command line: help at once, everything else through Hydra, errors as sentences, exit codes."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.model import Refusal, Settings
from runner.process import interrupts, lifetimes

OK, BAD_ROWS, REFUSED, BUG, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line (without the program's name) and returns the exit code.

    0: every row is right. 1: some row is wrong, error, crashed or timeout. 2: refused, with a sentence
    for each fault on stderr. 3: the runner itself failed, with its traceback. 130: interrupted, 143: told to
    end by SIGTERM; what was finished is kept, and `resume=<folder>` carries on.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    lifetimes.hide_memory()  # it holds the seed
    with interrupts.handled():
        code = guarded(_main, words)
        if interrupts.told or code == INTERRUPTED:
            code = TERMINATED if signal.SIGTERM in interrupts.told else INTERRUPTED
            print(f"runner: {'terminated' if code == TERMINATED else 'interrupted'}", file=sys.stderr)
        return code


def _main(words: list[str]) -> int:
    if {"--help", "-h"} & set(words):
        from runner.command import usage

        usage.show(usage.page())
        return OK
    run: Any
    if any(word.startswith("resume=") for word in words):
        from runner.command.resume import Resume

        run = Resume(words)
        code = guarded(run.carry_on)
    else:
        from runner.command import listing
        from runner.command.jobs import Run

        run = Run(execute, listing.describe)
        code = guarded(drive, words, run)
    joined = guarded(finish, run)  # also when interrupted: what was finished is kept
    if run.sweep and (code == INTERRUPTED or interrupts.told):
        from runner import driver

        driver.say_what_is_left(run.sweep)
    return code or joined


def guarded(step: Callable[..., int], *arguments: Any) -> int:
    """The step's exit code, also where it does not come to its end."""
    try:
        return step(*arguments)
    except Refusal as refusal:
        return complain(str(refusal))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if interrupts.told:  # what it interrupted made something else of it
            return INTERRUPTED
        traceback.print_exc()
        sentence = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"runner: internal error: {sentence}; the traceback is above", file=sys.stderr)
        return BUG


def drive(words: list[str], run: Any) -> int:
    """The exit code as far as it does not depend on rows."""
    from runner.command import jobs

    try:
        jobs.drive(words, run)
    except (Refusal, *jobs.USER_ERRORS) as error:
        if interrupts.told:
            return INTERRUPTED
        return complain("\n".join([*run.refusals, jobs.sentence(error)]))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else REFUSED if stop.code else OK
    return complain("\n".join(run.refusals)) if run.refusals else OK


def console() -> None:
    """The installed command."""
    sys.exit(main())


def complain(sentences: str) -> int:
    """Prints each sentence on a line of its own."""
    for line in sentences.splitlines():
        print(f"runner: {line}", file=sys.stderr)
    return REFUSED


def execute(settings: Settings, folder: Path | None, label: str = "") -> Any:
    """One job. Returns the driver's Outcome, or None where nothing is run."""
    if settings.mode == "list":
        from runner.command import listing, usage

        usage.show(listing.of_op(settings.op))
        return None
    from runner import driver

    return driver.execute(settings, folder, label=label)


def finish(run: Any) -> int:
    """Joins and prints what the jobs wrote: 1 when a row is bad."""
    if not run.outcomes and not run.sweep:
        return OK
    from runner import driver

    lost = _lost(run)
    try:
        code = driver.finish(run.sweep, run.outcomes)
    finally:
        complain("\n".join(lost))
    return BAD_ROWS if lost else code


def _lost(run: Any) -> list[str]:
    """Names every job of a launcher that did not come to its end, and has its rows written.

    Not when it is the sweep that was interrupted: what it did not come to is then left, as in a run alone.
    """
    if not (run.sweep and run.launcher):
        return []
    from runner.command import elsewhere, lost

    found = lost.find(run.sweep, run.expected())
    if not found:
        elsewhere.forget(run.sweep)
    more = [] if interrupts.told else lost.make_up(run.sweep, run.by_folder(), found)
    return [*filter(None, [run.ended]), *(f"job {name}: {why}" for name, why in found.items()), *more]
