"""The judge: `python -m runner.check <fd>`, started by `supervisor`. It serves `runner.check.judge.Judge`."""

from __future__ import annotations

import sys

from runner.process import lifetimes, serving

REQUESTS = ("hello", "accept", "open", "expect", "look", "close")


def main(argv: list[str]) -> None:
    lifetimes.hide_memory()
    pipe = serving.prepare(int(argv[1]))
    from runner.check.judge import Judge  # torch takes seconds: by then it has to end with its parent

    serving.serve(pipe, Judge, REQUESTS)


if __name__ == "__main__":
    main(sys.argv)
