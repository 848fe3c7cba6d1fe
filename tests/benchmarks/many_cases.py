"""What a case costs beyond its build, check and timing, and whether memory stays flat over a long run.

    python tests/benchmarks/many_cases.py [--cases 1000] [--every 100] [--csv many_cases.csv]

One run on the CPU over as many shapes of a tiny add. What the parent waits for in `prove` and `measure`
requests is build, check and timing; the rest of the time from the first row to the last is switching cases
and recording, and planning, which comes before, is timed once more. Resident memory is that of the parent,
of its worker and of the judge.
"""

from __future__ import annotations

import argparse
import collections
import csv
import os
import tempfile
import time
from pathlib import Path

from runner import driver
from runner.config import compose
from runner.model import Settings
from runner.plan import plan
from runner.process import supervisor
from runner.record.folder import Record
from runner.report import report

PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
WAITED: collections.Counter[str] = collections.Counter()
MOMENTS: list[
    tuple[float, collections.Counter[str]]
] = []  # at each row: when, and what was waited for by then
WORK = ("expect", "prove", "measure")  # the right answer is asked for first


def resident_mb(pid: int | str) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KB / 1024


def watch(every: int) -> list[tuple[int, float, float, float]]:
    """Sums up what requests take, and notes memory after each `every` rows. Returns the notes."""
    notes: list[tuple[int, float, float, float]] = []
    call, add, write = supervisor.Worker.call, Record.add, report.write

    asked: list[str] = []  # what is being answered: what the judge is asked meanwhile is part of it

    def timed_call(self, name, **arguments):
        asked.append(name)
        start = time.perf_counter()
        yield from call(self, name, **arguments)
        asked.pop()
        WAITED[" in ".join([name, *asked])] += time.perf_counter() - start

    def noted_add(self, row):
        add(self, row)
        MOMENTS.append((time.perf_counter(), WAITED.copy()))
        if len(self.rows) % every == 0:
            pids = {device.judges: worker._process.pid for device, worker in driver._POOL.items()}
            sizes = (resident_mb(pid) for pid in ("self", pids[False], pids[True]))
            notes.append((len(self.rows), *(round(size, 1) for size in sizes)))

    def timed_write(*arguments):
        start = time.perf_counter()
        write(*arguments)
        WAITED["report"] += time.perf_counter() - start

    supervisor.Worker.call, Record.add, report.write = timed_call, noted_add, timed_write
    return notes


def planning_s(settings: Settings) -> float:
    """Before the run, as in one: after it the collector would go through what its pictures left behind."""
    start = time.perf_counter()
    plan(settings)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--csv", type=Path, help="also write the memory there")
    asked = parser.parse_args()
    shapes = ",".join(f"{{rows: {n}, cols: 4}}" for n in range(1, asked.cases + 1))
    words = ["op=add", "variant=builtin", "device=cpu", "timing=warm", "trials=3", f"shapes=[{shapes}]"]
    notes = watch(asked.every)
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # with a device lock of its own: no other run is waited for
        start = time.perf_counter()
        settings = compose.compose([*words, f"output={folder}"])
        composed = time.perf_counter() - start
        planned = planning_s(settings)
        start = time.perf_counter()
        outcome = driver.execute(settings, show=False)
        wall = time.perf_counter() - start
    (first, before), (last, after) = MOMENTS[0], MOMENTS[-1]  # the worker's start and all imports lie before
    per_case = 1e3 / (len(MOMENTS) - 1)
    spent = {name: (after[name] - before[name]) * per_case for name in after}
    work = sum(spent[name] for name in WORK)
    planning = 1e3 * planned / len(outcome.rows)
    print(f"{len(outcome.rows)} cases in {wall:.1f} s")
    print(
        f"composed and validated once {composed:.2f} s, the worker's start {WAITED['hello']:.2f} s, ", end=""
    )
    print(f"ceilings {WAITED['ceilings']:.2f} s, report {WAITED['report']:.2f} s")
    print(f"build, check and timing   {work:6.2f} ms a case")
    print(f"all else                  {planning + (last - first) * per_case - work:6.2f} ms a case, of which")
    print(f"  {'planning':23} {planning:6.2f}")
    for name in ("open", "close"):
        print(f"  {name:23} {spent[name]:6.2f}")
    for count, *sizes in notes:
        words = "after {:5} cases: parent {:6.1f} MB, worker {:6.1f} MB, judge {:6.1f} MB"
        print(words.format(count, *sizes))
    if asked.csv:
        with open(asked.csv, "w", newline="") as file:
            head = ("cases", "parent_mb", "worker_mb", "judge_mb")
            csv.writer(file, lineterminator="\n").writerows([head, *notes])


if __name__ == "__main__":
    main()
