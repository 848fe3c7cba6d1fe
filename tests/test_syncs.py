"""Synchronizes at their lines: on traces made by hand, and on those of an H200 with twelve planted ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.trace import overlap, reading, syncs
from tests import planted_syncs
from tests.synthetic_trace import Made

TRACES = Path(__file__).parent / "traces"


def _recorded(name: str) -> list[reading.Trace]:
    return [reading.read(reading.load(TRACES / f"h200_{name}_{kind}.json.gz")) for kind in ("plain", "lines")]


def test_all_twelve_planted_on_an_h200_are_found_at_their_lines():
    plain, detail = _recorded("planted")
    rows = syncs.found(plain, detail, plain.names("step"), "step 0")
    places = sorted(int(row["place"].removeprefix("tests/planted_syncs.py:")) for row in rows)
    assert places == planted_syncs.lines() and len(places) == 12
    assert all(row["count"] == 1 and row["host_us"] > 0 for row in rows)


def test_none_is_invented_in_a_clean_loop_on_an_h200():
    plain, detail = _recorded("clean")
    assert syncs.found(plain, detail, plain.names("step"), "step 0") == []
    assert overlap.faults(plain, plain.names("step")) == []
    assert len(plain.activities) == 39


def _step(made: Made) -> Made:
    made.window("step 0", 0, 200).line("t.py:4 step", 10, 30).op("aten::item", 11, 20)
    made.kernel("k", 12, 10, host=(1, 2)).call("cudaStreamSynchronize", 15, 10)
    return made.kernel("next", 60, 5, host=(50, 5))


def test_a_wait_has_its_line_its_time_and_the_devices_idle_time():
    read = _step(Made()).trace()
    (row,) = syncs.found(read, read, ["step 0"], "step 0")
    assert (row["place"], row["operator"], row["by"]) == ("t.py:4", "aten::item", "cudaStreamSynchronize")
    assert (row["count"], row["host_us"], row["idle_us"]) == (1, 10, 60 - 22)


def test_two_waits_in_one_gap_share_it_out_once():
    read = _step(Made()).call("cudaDeviceSynchronize", 30, 2).trace()
    rows = syncs.found(read, read, ["step 0"], "step 0")
    assert sum(row["idle_us"] for row in rows) == 60 - 22


def _looped(made: Made) -> Made:
    """Two steps back to back, each with a wait of 10 us at its end."""
    made.window("loop", 1000, 300)
    for at in (1000, 1100):
        made.kernel("k", at + 10, 50, host=(at + 1, 2)).call("cudaStreamSynchronize", at + 52, 10)
    return made


def test_a_wait_at_the_end_of_a_step_leaves_the_device_idle_until_the_next():
    made = Made().window("step 0", 0, 200).line("t.py:4 step", 10, 90).op("aten::item", 45, 20)
    made.kernel("k", 12, 40, host=(11, 1)).call("cudaStreamSynchronize", 50, 7)
    read = _looped(made).trace()
    (alone,) = syncs.found(read, read, ["step 0"], "step 0")
    (looped,) = syncs.found(read, read, ["step 0"], "step 0", loop="loop")
    assert (alone["host_us"], alone["idle_us"]) == (7, 0)
    assert (looped["count"], looped["host_us"], looped["idle_us"]) == (1, 10, 50)


def test_a_loop_with_other_waits_is_not_taken():
    made = _looped(Made()).call("cudaDeviceSynchronize", 1290, 2)
    read = _step(made).trace()
    (row,) = syncs.found(read, read, ["step 0"], "step 0", loop="loop")
    assert row["idle_us"] == 60 - 22


def test_asynchronous_calls_are_no_waits():
    made = Made().window("step 0", 0, 100)
    for name in ("cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventQuery"):
        made.call(name, 10, 1)
    read = made.trace()
    assert syncs.found(read, read, ["step 0"], "step 0") == []


@pytest.mark.parametrize("witness, expected", [(["t.py:4 step"], "trace and torch"), ([], "trace")])
def test_torch_is_a_second_witness(witness, expected):
    read = _step(Made()).trace()
    assert [row["witness"] for row in syncs.found(read, read, ["step 0"], "step 0", witness)] == [expected]


def test_what_only_torch_saw_is_told():
    read = Made().window("step 0", 0, 100).trace()
    (row,) = syncs.found(read, read, ["step 0"], "step 0", ["u.py:8 loop", "u.py:8 loop", ""])
    assert (row["place"], row["count"], row["witness"]) == ("u.py:8", 2, "torch")
