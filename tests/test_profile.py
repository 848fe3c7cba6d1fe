"""`mode=profile` end to end on the CPU: an op, the step that comes along, a step of the user's own."""

from __future__ import annotations

import csv
import textwrap
from pathlib import Path

import pytest

from runner import driver
from runner.config.compose import compose
from runner.model import Refusal

SMALL = [
    "workload.args.batch=1",
    "workload.args.tokens=16",
    "workload.args.width=32",
    "workload.args.layers=1",
]
STEP = """
import torch

def helper(x):
    return torch.exp(x) * torch.tanh(x) + x

def forever(loader):
    while True:
        yield from loader

def make_step(lr=0.1, size=64):
    batches = forever(torch.utils.data.DataLoader(torch.randn(512, size), batch_size=8))
    weight = torch.randn(size, size, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=lr)

    def step():
        x = next(batches)
        loss = helper(x @ weight).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step

def no_step():
    return 3

def breaks():
    def step():
        raise ValueError("not today")
    return step
"""


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with open(folder / name, newline="") as file:
        return list(csv.DictReader(file))


def run(*words: str, output: Path) -> driver.Outcome:
    return driver.execute(compose([*words, "mode=profile", "device=cpu", f"output={output}"]), show=False)


@pytest.fixture
def mine(tmp_path) -> str:
    (tmp_path / "my_train.py").write_text(textwrap.dedent(STEP))
    return str(tmp_path / "my_train.py")


def test_an_ops_profile(tmp_path):
    outcome = run(
        "op=gelu", "variant=[naive,builtin]", "shapes=[{rows: 64, cols: 64}]", "trials=3", output=tmp_path
    )
    assert [row["status"] for row in outcome.rows] == ["ok", "ok"]
    naive, builtin = table(outcome.folder, "profiles.csv")
    assert (float(naive["moved_over_must"]), float(builtin["moved_over_must"])) == (
        pytest.approx(10, rel=0.3),
        1.0,
    )
    rows = table(outcome.folder / naive["folder"], "operators.csv")
    assert sum(float(row["share_percent"] or 0) for row in rows) == pytest.approx(100, abs=0.01)
    lines = {row["python"].rpartition(" > ")[2] for row in rows if row["operator"] == "aten::tanh"}
    assert lines == {"kernels/gelu/naive.py:19 gelu"}
    python = [row["operator"] for row in rows if row["kind"] == "python"]
    assert "kernels/gelu/naive.py:19 gelu" in python
    assert (outcome.folder / naive["folder"] / "trace.json.gz").is_file()
    page = (outcome.folder / "profile.md").read_text()
    case = "gelu approximate=tanh cols=64 rows=64 float32"
    assert "must move 32.77 kB; its operators move 32.77 kB by their shapes, 1x" in page
    assert page.count("profile of") == 2 and f"profile of naive, {case}: 26 operators a call" in page


def test_a_wrong_variant_is_not_profiled(tmp_path):
    words = [
        "op=add",
        "op.variants.builtin.target=torch.sub",
        "variant=[builtin]",
        "shapes=[{rows: 9, cols: 9}]",
    ]
    outcome = run(*words, output=tmp_path)
    assert {row["status"] for row in outcome.rows} == {"wrong"} and not list(
        outcome.folder.rglob("trace.json.gz")
    )


def test_the_backward_has_the_lines_of_its_forward(tmp_path):
    words = ["op=gelu", "variant=[naive]", "shapes=[{rows: 8, cols: 8}]", "trials=2", "direction=backward"]
    outcome = run(*words, output=tmp_path)
    (folder,) = (row["folder"] for row in table(outcome.folder, "profiles.csv"))
    rows = [
        r for r in table(outcome.folder / folder, "operators.csv") if r["operator"] == "aten::tanh_backward"
    ]
    assert [row["python"].rpartition(" > ")[2] for row in rows] == ["kernels/gelu/naive.py:19 gelu"]


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    return run("workload=train_step", *SMALL, "seed=1", output=tmp_path_factory.mktemp("before")).folder


def test_the_step_is_split_and_its_shares_add_up(before):
    (step,), rows = table(before, "steps.csv"), table(before, "operations.csv")
    parts = [float(step[f"{phase}_us"]) for phase in ("forward", "backward", "optimizer", "data")]
    assert sum(parts) == pytest.approx(float(step["device_us"]), rel=0.01)
    assert sum(float(row["share_percent"]) for row in rows) == pytest.approx(100, abs=1)
    assert all(part > 0 for part in parts[:3]) and step["syncs"] == ""


def test_the_naive_forms_are_recognized(before):
    patterns = {row["pattern"]: row["where"] for row in table(before, "operations.csv") if row["pattern"]}
    assert patterns == {"gelu": "kernels/gelu/naive.py", "attention": "kernels/attention/naive.py"}


def test_the_forms_of_a_step_are_checked_first(before):
    rows = table(before, "results.csv")
    found = [(row["op"], row["direction"], row["status"]) for row in rows]
    assert found == [(op, way, "checked") for op in ("gelu", "attention") for way in ("forward", "backward")]


def test_before_and_after(before, tmp_path):
    words = ["workload=train_step", *SMALL, "seed=1", "workload.gelu=builtin", f"before={before}"]
    rows = table(run(*words, output=tmp_path).folder, "before_after.csv")
    gelu = next(row for row in rows if row["operation"] == "gelu")
    assert float(gelu["after_us"]) > 0 and gelu["predicted_saving_us"]
    assert rows[-1]["operation"] == "step" and rows[-1]["predicted_saving_us"] == gelu["predicted_saving_us"]


def test_a_step_of_the_users_own(mine, tmp_path):
    words = [f"workload.target={mine}:make_step", "workload.args.lr=0.5"]
    outcome = run(*words, output=tmp_path / "out")
    names = {row["operation"] for row in table(outcome.folder, "operations.csv")}
    assert {
        "helper",
        "matmul",
        "optimizer",
        "DataLoader",
    } <= names and outcome.folder.parent.name == "my_train"


@pytest.mark.parametrize(
    "words, sentence",
    [
        ("{mine}:make_step workload.args.depth=3", "no argument depth; it takes lr, size"),
        ("{mine}:no_step", "returned a int, not a callable step"),
        ("{mine}:breaks", "ValueError: not today"),
    ],
)
def test_what_makes_no_step_is_refused(mine, tmp_path, words, sentence):
    with pytest.raises(Refusal, match=sentence):
        run(*f"workload.target={words.format(mine=mine)}".split(), output=tmp_path / "out")
