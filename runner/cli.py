"""The command line: help at once, everything else through Hydra, errors as sentences, exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.model import Refusal, Settings

OK, BAD_ROWS, REFUSED, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line (without the program's name) and returns the exit code.

    0: every row is right. 1: some row is wrong, error, crashed or timeout. 2: refused, with a sentence
    for each fault on stderr. 130: interrupted; what was finished is kept.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if {"--help", "-h"} & set(words):
        from runner import usage

        show(usage.page())
        return OK
    from runner.jobs import Run

    run = Run(execute, describe)
    try:
        code = drive(words, run)
    finally:
        joined = finish(run)  # also when interrupted: what was finished is kept
    return code or joined


def drive(words: list[str], run: Any) -> int:
    """The exit code as far as it does not depend on rows."""
    from runner import jobs

    try:
        jobs.drive(words, run)
    except (Refusal, *jobs.USER_ERRORS) as error:
        return complain(jobs.sentence(error))
    except KeyboardInterrupt:
        print("runner: interrupted", file=sys.stderr)
        return INTERRUPTED
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


def show(text: str) -> None:
    """Prints a page; a reader that has seen enough (`| head`) is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def execute(settings: Settings, folder: Path | None, label: str = "") -> Any:
    """One job. Returns the driver's Outcome, or None where nothing is run."""
    if settings.mode == "list":
        from runner import listing

        show(listing.of_op(settings.op))
        return None
    from runner import driver

    return driver.execute(settings, folder, label=label)


def describe(ops: list) -> None:
    """Prints every op."""
    from runner import listing

    show(listing.of_all(ops))


def finish(run: Any) -> int:
    """Joins and prints what the jobs wrote: 1 when a row is bad."""
    if not run.outcomes and not run.sweep:
        return OK
    from runner import driver

    return driver.finish(run.sweep, run.outcomes)
