"""The process that touches variants: `python -m runner.worker <fd>`, started by `supervisor`.

It takes one pickled request at a time, announces each step before it takes it, and answers with events,
each a line of JSON with the request's number and this process's id; the last of a request is `done` or
`failed`. It outlives a run. Standard output and error belong to the variants.
"""

from __future__ import annotations

import sys

from runner.process import lifetimes, memory, serving

REQUESTS = ("hello", "offer", "open", "prove", "measure", "ceilings", "traps", "profile", "workload", "close")


def main(argv: list[str]) -> None:
    pipe = serving.prepare(int(argv[1]))
    lifetimes.adopt_orphans()
    memory.offer_first()
    from runner.worker import surroundings
    from runner.worker.session import Session

    surroundings.refuse_audit_hooks()

    serving.serve(pipe, Session, REQUESTS)


if __name__ == "__main__":
    main(sys.argv)
