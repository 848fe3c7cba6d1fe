"""kill -9 of the runner at random moments: rows stay whole, nothing is left, the rest can be finished."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.process import lifetimes
from runner.record import planned
from runner.record.columns import COLUMNS
from tests.support import ROOT
from tests.test_supervisor import FAKE, SHELL, write_op

MOMENTS, REAL_MOMENTS = 20, 3
CODES = {
    "first": "import subprocess; subprocess.Popen(['sleep', '298'], start_new_session=True)",
    "wrong": "answer.update(status='wrong', reason='so', stage='check')",
    "second": "",
    "crashes": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "third": "print('words')",
    "raises": "answer.update(status='error', reason='so', stage='check')",
}


class Runs:
    """Command lines of one op, each with a folder of its own for what comes out."""

    def __init__(self, command: list[str], words: list[str], root: Path, **variables: str) -> None:
        self.command, self.words, self.root, self.variables = command, words, root, variables

    def start(self, *words: str, mark: str = "") -> subprocess.Popen:
        own = {"KILL_TEST": mark, "TMPDIR": str(self.root)}  # no device lock of others is waited for
        environment = os.environ | self.variables | own
        null = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.Popen([*self.command, *words], cwd=ROOT, env=environment, text=True, **null)

    def whole(self) -> tuple[set, float]:
        """The rows of a run that nobody ends, and the seconds that it took."""
        began = time.monotonic()
        run = self.start(*self.words, f"output={self.root / 'whole'}")
        run.communicate()
        return facts_of(rows_of(folder_in(self.root / "whole"))), time.monotonic() - began

    def killed(self, after_s: float, expected: set) -> str:
        """What is wrong with a run that is killed after that time and then resumed; empty when nothing is."""
        mark, out = uuid.uuid4().hex, self.root / f"{after_s:.6f}"
        run = self.start(*self.words, f"output={out}", mark=mark)
        time.sleep(after_s)
        started = lifetimes.family(run.pid)  # worker and judge too, whose environment need not be readable
        run.send_signal(signal.SIGKILL)
        run.wait()
        if left := orphans(mark, started):
            return f"left behind: {left}"
        folder = folder_in(out)
        if folder is None or not (folder / planned.NAME).is_file():
            return "" if not list(out.rglob("results.csv")) else "rows without a plan"
        before = rows_of(folder)
        if not facts_of(before) <= expected:
            return f"not whole rows: {before}"
        with planned.in_use(folder):  # nobody holds it
            pass
        _, said = self.start(f"resume={folder}").communicate()
        after = rows_of(folder)
        if facts_of(after) != expected:
            return f"resumed to {facts_of(after)}: {said}"
        told = {row["row_id"]: row | {"seed": ""} for row in after}
        return "" if all(told[row["row_id"]] == row | {"seed": ""} for row in before) else "a row changed"


def folder_in(out: Path) -> Path | None:
    return next(iter(sorted(out.glob("*/*"))), None)


def rows_of(folder: Path | None) -> list[dict[str, str]]:
    if folder is None or not (folder / "results.csv").exists():
        return []
    text = (folder / "results.csv").read_text("utf-8")
    assert not text or text.endswith("\n")
    rows = list(csv.DictReader(text.splitlines()))
    assert all(len(row) == len(COLUMNS) and None not in row.values() for row in rows)
    return rows


def facts_of(rows: list[dict[str, str]]) -> set[tuple[str, ...]]:
    facts = [tuple(row[name] for name in ("case_id", "variant", "params", "status")) for row in rows]
    assert len(facts) == len(set(facts))
    return set(facts)


def orphans(mark: str, started: set[int], within_s: float = 3.0) -> list[str]:
    """Command lines of those `started`, or with `mark` in their environment, which outlast that time."""
    deadline = time.monotonic() + within_s
    while (found := _left(f"KILL_TEST={mark}".encode(), started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _left(variable: bytes, started: set[int]) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()  # none of one that ended
            own = int(path.name) in started or variable in (path / "environ").read_bytes().split(b"\0")
            found += [words] if words and own else []
        except OSError:  # it ended, or is another user's
            continue
    return found


def killed_at_random(runs: Runs, moments: int) -> list[str]:
    """What is wrong, by moment; the seed is in each sentence."""
    expected, lasts_s = runs.whole()
    assert len(expected) == len(CODES) or "add" in str(runs.words)
    seed = int(os.environ.get("KILL_SEED", time.time_ns() % 10**6))
    chosen = random.Random(seed)
    times = [chosen.uniform(0.0, 1.2 * lasts_s) for _ in range(moments)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda after_s: runs.killed(after_s, expected), times))
    return [
        f"KILL_SEED={seed}, at {at:.3f} s of {lasts_s:.3f}: {one}" for at, one in zip(times, found) if one
    ]


def test_kill_at_random_moments(tmp_path):
    conf = write_op(tmp_path, CODES)
    words = ["--config-dir", str(conf), "op=double", "variant=all", "device=cpu", "trials=3", "seed=1"]
    command = [sys.executable, "-c", SHELL.format(fake=FAKE[0])]
    assert killed_at_random(Runs(command, words, tmp_path, FAKE_SLOW_S="0.05"), MOMENTS) == []


@pytest.mark.slow
def test_kill_at_random_moments_with_torch(tmp_path):
    words = ["op=add", "variant=[naive,builtin]", "device=cpu", "trials=3", "shape.rows=4", "shape.cols=4"]
    runs = Runs([sys.executable, "-m", "runner"], words, tmp_path)
    assert killed_at_random(runs, REAL_MOMENTS) == []
