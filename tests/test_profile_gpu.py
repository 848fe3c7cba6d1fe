"""On a GPU: synchronizes at their lines, kernels all there, times that agree with the harness."""

from __future__ import annotations

import csv

import pytest

from runner import driver
from runner.config.compose import compose
from runner.trace import overlap, reading, syncs
from tests import planted_syncs

pytestmark = pytest.mark.gpu
AGREES_PERCENT = 3.0


def _profiled(step, folder):
    from runner.profile.profiler import Profiler, sync_witness

    profiler = Profiler("cuda:0", folder)
    for _ in range(3):
        step()

    def plain():
        for number in range(3):
            with profiler.window(f"step {number}"):
                step()
            profiler.synchronize()

    def detail():
        with profiler.lines("step 0"):
            step()

    profiler.plain(plain)
    with sync_witness("cuda:0") as witness:
        profiler.detail(detail)
    traces = [reading.read(reading.load(folder / name)) for name in ("trace.json.gz", "trace_lines.json.gz")]
    return *traces, witness


def test_all_planted_synchronizes_are_found_at_their_lines(tmp_path):
    plain, detail, witness = _profiled(planted_syncs.planted("cuda:0"), tmp_path)
    rows = syncs.found(plain, detail, plain.names("step"), "step 0", witness)
    places = sorted(int(row["place"].rpartition(":")[2]) for row in rows)
    assert places == planted_syncs.lines()
    assert all(row["place"].startswith("tests/planted_syncs.py") and row["count"] == 1 for row in rows)


def test_none_is_invented_in_a_clean_loop(tmp_path):
    plain, detail, witness = _profiled(planted_syncs.clean("cuda:0"), tmp_path)
    assert syncs.found(plain, detail, plain.names("step"), "step 0", witness) == []
    assert overlap.faults(plain, plain.names("step")) == []


@pytest.mark.parametrize("op", ["gelu", "softmax"])
def test_device_times_are_those_of_the_harness(tmp_path, op):
    words = [f"op={op}", "variant=[naive,builtin]", "mode=profile", f"output={tmp_path}", "device=cuda"]
    outcome = driver.execute(compose(words), show=False)
    with open(outcome.folder / "profiles.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and not outcome.failed
    assert all(abs(float(row["difference_percent"])) < AGREES_PERCENT for row in rows)
    assert [int(row["kernels_per_call"]) > 0 for row in rows] == [True, True]
