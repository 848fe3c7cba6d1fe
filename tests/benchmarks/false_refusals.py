"""Is a true variant ever refused? Every variant of the ops, by dtype and direction, on many secret seeds.

    python tests/benchmarks/false_refusals.py [--ops add,cdist,gelu,softmax] [--seeds 50] [--device cpu]
        [--interpreted-seeds 3] [--variants all] [--skip compile,...] [--dtypes '[float32]']
        [--shapes '[{rows: 5, cols: 257}]'] [--minutes 20]

Checks as a run does, with the same judge and the same rule, in one process: inputs, reference, both calls,
the odd shape, layouts, scales and infinities beside the case; global state is not compared. A variant is
built once; who keeps memory or calls the built-in is looked at on the first seed only, for that does not
depend on values. Prints seeds passed by variant, dtype and direction, and each refusal with its reason;
exits with 1 if there is one.
Triton's interpreter, which a CPU uses, is slow: those variants get `--interpreted-seeds`.
"""

from __future__ import annotations

import argparse
import collections
import functools
import gc
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

SMALL = {
    "add": "[{rows: 33, cols: 31, b_rows: 1}]",
    "cdist": "[{n: 33, m: 70, d: 5}]",
    "gelu": "[{rows: 5, cols: 205}]",
    "softmax": "[{rows: 5, cols: 257}]",
}
ATTRIBUTES = {
    "add": [],
    "cdist": ["attrs.p=[2.0,1.0,3.0]"],
    "gelu": ["attrs.approximate=[tanh,none]"],
    "softmax": ["attrs.dim=[-1,0]"],
}
ROOT = Path(__file__).resolve().parents[2]
Passed = collections.Counter[tuple[str, ...]]


class Here:
    """The judge and the worker's end of the pipe, in this process."""

    pid, usable = os.getpid(), True

    def __init__(self, settings: Any) -> None:
        from runner.check.judge import Judge

        self.settings, self._judge = settings, Judge(None)
        self._judge.hello(settings.device, 1)
        self.said: dict[str, Any] = {}

    def judge(self) -> Here:
        return self

    def replace_judge(self) -> None:
        raise RuntimeError("the judge failed")

    def ask(self, name: str, **arguments: Any) -> dict[str, Any]:
        return getattr(self._judge, name)(**arguments) or {}

    def answer(self, **fields: Any) -> None:
        self.said = fields


class Check:
    """All variants of one planned case."""

    def __init__(self, here: Here, planned: Any) -> None:
        from runner import model
        from runner.check import exchange, prove

        self.here, self.planned = here, planned
        outbox = functools.partial(exchange.Outbox, here.settings.device, model.HOST)
        self.cases = [prove.OpenCase(case, outbox) for case in planned.checked]
        self.built: dict[int, Any] = {}

    def once(self, seed: int, entries: list[Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The verdict on each of these with that seed."""
        from runner.parent.judging import Judging

        self.here.settings = replace(self.here.settings, seed=seed)
        judging = Judging(self.here, self.planned)
        for entry in entries:
            yield entry, self._verdict(judging, entry)
        judging.close()

    def _verdict(self, judging: Any, entry: Any) -> dict[str, Any]:
        from runner.build.variant import NotInstalled
        from runner.check import prove

        draws = judging.draws(entry)
        for position, draw in draws.items():
            self.cases[position].draw(**draw)

        def judged(position: int, outbox: Any, call: str) -> bool:
            told = {"index": entry.index, "position": position, "place": outbox.place, "fault": ""}
            judging.answer(self.here, {"event": "output", **told, "round": None, "call": call}, [])
            return self.here.said["right"]

        cases = {position: self.cases[position] for position in draws}
        try:
            proof = prove.prove(cases, entry, self._callable(entry), judged)
        except (NotImplementedError, NotInstalled) as refusal:
            return {"status": "skipped", "reason": str(refusal)}
        except Exception as error:  # a variant's own, whatever it raises
            return {"status": "error", "reason": f"{type(error).__name__}: {error}"}
        return judging.verdict(entry, proof.facts)

    def _callable(self, entry: Any) -> Any:
        from runner.build.variant import build

        if entry.index not in self.built:
            self.built[entry.index] = build(entry.variant, self.here.settings.device, Path(self.here.keep)).fn
        return self.built[entry.index]


def settings_of(op: str, arguments: argparse.Namespace) -> Any:
    from runner.config.compose import compose

    words = [
        f"op={op}",
        f"variant={arguments.variants}",
        f"dtype={arguments.dtypes}",
        "direction=[forward,backward]",
    ]
    words += [f"shapes={arguments.shapes or SMALL[op]}", f"device={arguments.device}", "mode=check"]
    return compose(words + ATTRIBUTES[op])


def measure(op: str, arguments: argparse.Namespace, until: float) -> tuple[Passed, list[str]]:
    """Seeds passed and refusals of one op."""
    from runner.check import prove
    from runner.plan import plan

    settings = settings_of(op, arguments)
    here = Here(settings)
    here.keep = arguments.keep
    passed: Passed = collections.Counter()
    refusals: list[str] = []
    habits = prove._habits
    cases = [Check(here, planned) for planned in plan(settings).cases]
    skip = set(arguments.skip.split(","))
    for number in range(arguments.seeds):
        prove._habits = habits if number == 0 else lambda *a: ([], "")
        for check in cases:
            case = check.planned.case
            left = [e for e in check.planned.entries if not e.skip and e.variant.name not in skip]
            left = [e for e in left if not e.interpreted or number < arguments.interpreted_seeds]
            seed = secrets.randbelow(2**63)
            for entry, facts in check.once(seed, left) if time.monotonic() < until else []:
                key = (op, entry.variant.name, case.dtype, case.direction)
                passed[key] += facts["status"] == "ok"
                if facts["status"] not in ("ok", "skipped"):
                    refusals.append(f"{' '.join(key)} {case.attrs} seed={seed}: {facts['reason']}")
                    print("REFUSED", refusals[-1], flush=True)
    prove._habits = habits
    return passed, refusals


def show(passed: Passed) -> None:
    """A line for each variant: seeds passed, over all attributes, by dtype and direction."""
    columns = sorted({key[2:] for key in passed})
    print(f"{'variant':28}", *(f"{dtype[:8]}.{direction[:3]:3}".rjust(13) for dtype, direction in columns))
    for op, name in dict.fromkeys(key[:2] for key in passed):
        cells = (passed.get((op, name, *column), "") for column in columns)
        print(f"{op + ' ' + name:28}", *(str(cell).rjust(13) for cell in cells))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="add,cdist,gelu,softmax")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--interpreted-seeds", type=int, default=3)
    parser.add_argument("--variants", default="all")
    parser.add_argument("--skip", default="", help="variants to leave out")
    parser.add_argument("--dtypes", default="[float32,bfloat16,float16]")
    parser.add_argument("--shapes", default="", help="for one op: YAML, as on the runner's command line")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=20.0, help="for each op")
    parser.add_argument("--keep", default="/tmp/false_refusals", help="build files")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    sys.path.insert(0, str(ROOT))  # the ops' kernels are no package that is installed
    failed = False
    for op in arguments.ops.split(","):
        began = time.monotonic()
        gc.collect()
        gc.freeze()
        passed, refusals = measure(op, arguments, began + arguments.minutes * 60)
        show(passed)
        print(
            f"{op}: {sum(passed.values())} passed, {len(refusals)} refused, {time.monotonic() - began:.0f} s"
        )
        failed = failed or bool(refusals)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
