"""What stands under the tables of steps and claims: sentences that follow from the figures."""

from __future__ import annotations

import json

from runner.files import write_csv
from runner.profile.step import STEP_COLUMNS
from runner.profile.triage import COLUMNS as OPERATION_COLUMNS
from runner.report import claims, steps


def _step(print_every: int, step_us: float, **more) -> dict:
    args = json.dumps({"print_every": print_every})
    return {
        "workload": "train_step",
        "forms": "{}",
        "args": args,
        "compile": "false",
        "device": "NVIDIA H200",
        "step_us": step_us,
        "busy_percent": 90.0,
        "syncs": 0,
        "bound": "device",
    } | more


def test_steps_side_by_side_say_what_each_costs(tmp_path):
    write_csv(tmp_path / "steps.csv", STEP_COLUMNS, [_step(1, 1100.0), _step(0, 1000.0)])
    ((title, headings, lines, below),) = steps.side_by_side(tmp_path)
    assert title == "train_step on NVIDIA H200" and headings[0] == "print_every"
    assert [line[:2] for line in lines] == [["1", "1.1 ms"], ["0", "1 ms"]]
    assert (
        below[0] == "  print_every=1: 10.0 % slower than the fastest" and "without the profiler" in below[1]
    )


def test_on_a_cpu_steps_differ_by_chance(tmp_path):
    rows = [_step(1, 1100.0, busy_percent=""), _step(0, 1000.0, busy_percent="")]
    write_csv(tmp_path / "steps.csv", STEP_COLUMNS, rows)
    ((*_, below),) = steps.side_by_side(tmp_path)
    assert "on a CPU nothing is waited for" in below[-1]


def test_a_claim_at_several_sizes_says_where_it_holds(tmp_path):
    common = {"claim": "it is a product", "op": "cdist", "published": 70, "unit": "%"}
    verdicts = {3: "does not hold here: 37 is under 70", 1024: "holds", 2048: "holds"}
    rows = [common | {"what": f"builtin d={d}", "here": 1, "verdict": said} for d, said in verdicts.items()]
    write_csv(tmp_path / "claims.csv", claims.COLUMNS, rows)
    ((*_, below),) = steps.claims(tmp_path)
    assert below == ["  it is a product: holds at d=1024, d=2048"]


def test_a_loader_is_shown_though_it_has_no_share(tmp_path):
    zero = dict.fromkeys(OPERATION_COLUMNS, 0)
    rows = [
        zero | {"operation": "mm", "where": "a/t.py:3", "share_percent": 100},
        zero | {"operation": "DataLoader", "where": "a/t.py:2", "predicted_gain_percent": 40},
        zero | {"operation": "add", "where": "a/t.py:4"},
    ]
    write_csv(tmp_path / "operations.csv", OPERATION_COLUMNS, rows)
    one = _step(0, 1000.0, loader_us=500, loader_idle_us=400, host_us=900, conclusion="first: DataLoader")
    write_csv(tmp_path / "steps.csv", STEP_COLUMNS, [one])
    (_, _, lines, below), (*_, said) = steps.step(tmp_path)
    assert [line[0] for line in lines] == ["mm", "DataLoader"] and below == ["  and 1 more, 0.0 % together"]
    assert "  the host waits 500 us a step for its loader; the GPU stands still 400 us of that" in said
