"""Published figures beside ours: what each verdict says, and what is not measured."""

from __future__ import annotations

import pytest
import yaml

from runner.config.claims import faults
from runner.files import write_csv
from runner.profile.case import PROFILE_COLUMNS
from runner.record.columns import COLUMNS
from runner.report import claims

ROWS = [
    {"row_id": "1", "op": "gelu", "variant": "naive", "shape": '{"rows":8}', "status": "ok", "mean_ms": 4.0},
    {
        "row_id": "2",
        "op": "gelu",
        "variant": "builtin",
        "shape": '{"rows":8}',
        "status": "ok",
        "mean_ms": 0.5,
    },
    {"row_id": "3", "op": "gelu", "variant": "tuned", "shape": '{"rows":8}', "status": "wrong"},
    {"row_id": "4", "op": "cdist", "variant": "builtin", "shape": '{"d":3}', "status": "ok", "mean_ms": 1.0},
    {"row_id": "5", "op": "cdist", "variant": "builtin", "shape": '{"d":64}', "status": "ok", "mean_ms": 1.0},
]
PROFILES = [{"row_id": "4", "product_percent": 20.0}, {"row_id": "5", "product_percent": 81.0}]
GELU, CDIST = (
    {"op": "gelu", "measure": "mean_ms"},
    {"op": "cdist", "measure": "product_percent", "at_least": True},
)
CASES = {  # claim, our figure, begin of the verdict
    "faster": (GELU | {"variant": "naive", "figure": 8.0}, 4.0, "2.0x faster here"),
    "slower": (GELU | {"variant": "builtin", "figure": 0.25}, 0.5, "2.0x slower here"),
    "same": (GELU | {"variant": "builtin", "figure": 0.51}, 0.5, "the same here"),
    "speedup": (
        GELU | {"variant": "builtin", "over": "naive", "measure": "speedup", "figure": 4.0},
        8.0,
        "more here: 2.0 times as much",
    ),
    "less": (CDIST | {"variant": "builtin", "shape": {"d": 3}, "figure": 70}, 20.0, "does not hold here: 20"),
    "holds": (CDIST | {"variant": "builtin", "shape": {"d": 64}, "figure": 70}, 81.0, "holds"),
    "wrong": (GELU | {"variant": "tuned", "figure": 1}, None, "tuned is wrong"),
    "absent": (GELU | {"variant": "none", "figure": 1}, None, "there is no such row"),
}


@pytest.mark.parametrize("claim, here, verdict", CASES.values(), ids=CASES)
def test_verdicts(tmp_path, claim, here, verdict):
    job = tmp_path / "0_op=gelu"
    job.mkdir()
    write_csv(job / "results.csv", COLUMNS, ROWS)
    write_csv(job / "profiles.csv", PROFILE_COLUMNS, PROFILES)
    (job / "config.yaml").write_text(yaml.safe_dump({"claims": [claim | {"says": "it"}]}))
    (row,) = claims.write_table(tmp_path)
    assert (row["here"], verdict in row["verdict"]) == (here, True)
    assert (tmp_path / "claims.csv").is_file()


def test_a_sweep_without_claims_has_no_table(tmp_path):
    assert claims.write_table(tmp_path) == []


@pytest.mark.parametrize(
    "claim, sentence",
    [
        ({"says": "x", "op": "gelu", "variant": "naive"}, "claims[0]: measure is missing"),
        ({"says": "x", "op": "gelu", "variant": "naive", "measure": "mean"}, "no measure 'mean'"),
        ({"says": "x", "op": "gelu", "variant": "naive", "measure": "speedup"}, "needs `over`"),
    ],
)
def test_faults(claim, sentence):
    assert sentence in next(iter(faults([claim])))
