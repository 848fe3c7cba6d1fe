"""What one command line may sweep over, and that no two runs ever share a folder."""

from __future__ import annotations

import datetime
import itertools
import threading

import pytest
import yaml

from runner.config.compose import compose
from runner.plan import plan
from runner.record import folder as record
from tests.support import ROOT

SIZES = {"gelu_shapes": 12, "softmax_shapes": 14, "cdist_points": 10, "softmax_warps": 6}


def test_everything_at_once_is_one_run_with_a_row_for_each_combination():
    words = [
        "op=softmax",
        "device=cpu",
        "variant=[builtin,triton_row]",
        "dtype=[float32,bfloat16]",
        "direction=[forward,backward]",
        "layout=[contiguous,offset1]",
        "attrs.dim=[0,-1]",
        "shapes=[{rows: 2, cols: 3}, {rows: 4, cols: 5}]",
        "op.variants.triton_row.params.num_warps=[4,8,16]",
    ]
    cases = plan(compose(words)).cases
    assert len(cases) == 2**5 and {len(each.entries) for each in cases} == {1 + 3}
    assert [entry.params for entry in cases[0].entries][1:] == [{"num_warps": n} for n in (4, 8, 16)]
    assert len({each.case.case_id for each in cases}) == len(cases)


@pytest.mark.parametrize("name", SIZES)
def test_the_experiments_over_sizes(name):
    settings = compose([f"experiment={name}", "device=cpu"])
    assert len(plan(settings).cases) == SIZES[name]
    assert settings.measure.budget_s <= 2
    assert settings.why and settings.experiment == name


def test_the_experiment_over_all_ops_names_every_op():
    experiment = yaml.safe_load((ROOT / "conf" / "experiment" / "all_ops.yaml").read_text())
    assert set(experiment["hydra"]["sweeper"]["params"]["op"].split(",")) == {
        "gelu",
        "softmax",
        "add",
        "cdist",
    }


def test_folders_that_are_claimed_in_the_same_microsecond_are_two(tmp_path, monkeypatch):
    """As on two hosts of one name that share a disk: same host, same process number, same time at first."""
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    ticks = itertools.count()

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return moment + datetime.timedelta(microseconds=next(ticks) // 20)

    monkeypatch.setattr(record, "datetime", Clock)
    claimed = []
    threads = [threading.Thread(target=lambda: claimed.append(record.claim(tmp_path))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(claimed)) == 20 and all(folder.is_dir() for folder in claimed)
