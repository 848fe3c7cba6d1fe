"""Runs end to end on the CPU: one row for each planned one, whatever a variant does."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from runner import driver
from runner.config.compose import compose
from runner.record.columns import COLUMNS, SAMPLE_COLUMNS
from tests.support import ROOT

FAULTS = """
import collections, os, signal, sys, time
import torch

def right(x):
    return x * 2

def wrong(x):
    return x * 2.001

def raises(x):
    raise ValueError("no such luck\\nsecond line")

def segfaults(x):
    os.kill(os.getpid(), signal.SIGSEGV)

def leaves(x):
    os._exit(0)

def exits(x):
    sys.exit(3)

def hangs(x):
    time.sleep(600)

def floods(x):
    for _ in range(100):
        print("y" * 100_000)
    return x * 2

def returns_none(x):
    return None

def writes_input(x):
    return x.mul_(2)

def refuses(x):
    raise NotImplementedError("This variant takes only a Tuesday.")

def refuses_large_values(x):
    if x.abs().max() > 1000:
        raise NotImplementedError("Not these.")
    return x * 2

CALLS = collections.Counter()

def counted(name):
    CALLS[name] += 1  # eight of them are the check's, the next three warm up
    return CALLS[name]

def raises_when_timed(x):
    if counted("raises_when_timed") > 9:
        raise ValueError("late")
    return x * 2

def changes_input_when_timed(x):
    out = x * 2
    if counted("changes_input_when_timed") > 9:
        x.mul_(1.5)
    return out

def silent(x):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")
    raise Mute()

def replaces_torch(x):
    torch.mul = lambda a, b: a
    return x * 2

def wrong_now_and_then(x):
    return x * 3 if counted("wrong_now_and_then") % 3 == 0 else x * 2

def lazy(x):
    out = torch.empty_like(x)
    out.detach = lambda: x * 2
    return out

def sets_dtype(x):
    out = x * 2
    torch.set_default_dtype(torch.float64)
    return out

def later_wrong(x):
    return x * 2 if counted("later_wrong") < 12 else x * 3

def dies_when_timed(x):
    if counted("dies_when_timed") > 9:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x * 2
"""

YAML = """
name: double
why: an op for tests
dims: [n]
shapes: {{cpu: [{{n: 1000}}], cuda: [{{n: 1000}}], smoke: [{{n: 3}}]}}
dtypes: [float32]
inputs: {{x: {{shape: [n]}}}}
reference: {{target: "{file}:right"}}
cost: {{forward: {{flops: n, read: n*itemsize, write: n*itemsize}}}}
baseline: right
variants:
{variants}
"""


@pytest.fixture
def run(tmp_path):
    """run(names, *overrides) -> {variant: row} of a run over the named faults."""
    file = tmp_path / "faults.py"
    file.write_text(FAULTS)

    def go(names, *overrides):
        lines = "\n".join(f"  {name}: {{target: '{file}:{name}'}}" for name in names)
        folder = tmp_path / "conf" / "op"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "double.yaml").write_text(YAML.format(file=file, variants=lines))
        words = [
            "op=double",
            "variant=all",
            "device=cpu",
            "trials=8",
            f"output={tmp_path / 'out'}",
            *overrides,
        ]
        outcome = driver.execute(compose(words, [str(tmp_path / "conf")]), show=False)
        with open(outcome.folder / "results.csv", newline="") as table:
            rows = list(csv.DictReader(table))
        go.outcome = outcome
        return {row["variant"]: row for row in rows}

    yield go
    driver.shutdown()


def test_every_fault_costs_its_own_row_only(run):
    names = [
        "right",
        "segfaults",
        "raises",
        "leaves",
        "exits",
        "floods",
        "returns_none",
        "writes_input",
        "wrong",
    ]
    rows = run([*names, "refuses", "later_wrong", "dies_when_timed"])
    status = {name: row["status"] for name, row in rows.items()}
    assert status == {
        "right": "ok",
        "floods": "error",
        "wrong": "wrong",
        "raises": "error",
        "exits": "error",
        "segfaults": "crashed",
        "leaves": "crashed",
        "returns_none": "wrong",
        "writes_input": "wrong",
        "refuses": "skipped",
        "later_wrong": "wrong",
        "dies_when_timed": "crashed",
    }
    assert run.outcome.failed
    assert rows["raises"]["reason"] == "ValueError: no such luck (faults.py:12)"
    assert re.match(r"printed \d+\.\d MB", rows["floods"]["reason"])
    assert "SIGSEGV" in rows["segfaults"]["reason"]
    assert "code 0" in rows["leaves"]["reason"]
    assert "NoneType" in rows["returns_none"]["reason"]
    assert "changed its input x" in rows["writes_input"]["reason"]
    assert rows["refuses"]["reason"] == "This variant takes only a Tuesday."
    assert rows["dies_when_timed"]["stage"] == "measure"
    assert "right when checked, wrong when timed" in rows["later_wrong"]["reason"]


def test_what_a_variant_declines_beside_the_case_is_said_in_its_row(run):
    rows = run(["right", "refuses_large_values"])
    assert rows["refuses_large_values"]["status"] == "ok"
    words = "says that it cannot do what is checked beside the case: scale 10000"
    assert words in rows["refuses_large_values"]["note"] and words not in rows["right"]["note"]


def test_what_fails_before_its_first_call_costs_its_own_row_only(run, tmp_path, monkeypatch):
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path / "cache"))
    codes = {
        "raises": "raise ValueError('at import')",
        "leaves": "import os; os._exit(0)",
        "exits": "exit(3)",
    }
    for name, code in codes.items():
        (tmp_path / f"{name}.py").write_text(f"def f(x): ...\n{code}\n")
    (tmp_path / "wrong.cpp").write_text("int value( { return 1; }\n")
    words = [f"op.variants.{name}.target={tmp_path / name}.py:f" for name in codes]
    words += ["op.variants.wrong.target=torch.ops.wrong.value"]
    words += [f"+op.variants.wrong.sources=['{tmp_path / 'wrong.cpp'}']"]
    rows = run(["right", *codes, "wrong", "floods"], *words, "mode=check")
    found = {name: (row["status"], row["stage"]) for name, row in rows.items()}
    failed = dict.fromkeys(["raises", "exits", "wrong"], ("error", "build"))
    flooded = {"right": ("checked", ""), "floods": ("error", "check")}
    assert found == failed | flooded | {"leaves": ("crashed", "build")}
    assert rows["raises"]["reason"].startswith("ValueError: at import")
    assert "wrong.cpp:1" in rows["wrong"]["reason"] and "error" in rows["wrong"]["reason"]


def test_what_spoils_the_case_for_all_costs_its_own_row_only(run):
    names = [
        "raises_when_timed",
        "changes_input_when_timed",
        "silent",
        "replaces_torch",
        "sets_dtype",
        "lazy",
    ]
    rows = run(["right", *names], "trials=20")
    assert rows["right"]["status"] == "ok"
    found = {name: (rows[name]["status"], rows[name]["stage"]) for name in names}
    assert found == {
        "raises_when_timed": ("error", "measure"),
        "changes_input_when_timed": ("wrong", "measure"),
        "silent": ("error", "check"),
        "replaces_torch": ("wrong", "check"),
        "sets_dtype": ("wrong", "check"),
        "lazy": ("wrong", "check"),
    }
    assert rows["raises_when_timed"]["reason"].startswith("ValueError: late")
    assert "its input x" in rows["changes_input_when_timed"]["reason"]
    assert "torch.mul (replaced)" in rows["replaces_torch"]["reason"]
    assert "the default dtype (torch.float32 before" in rows["sets_dtype"]["reason"]
    assert "attributes of its own (detach)" in rows["lazy"]["reason"]


def test_a_race_is_caught_in_the_timed_calls(run):
    row = run(["right", "wrong_now_and_then"], "trials=60", "seed=1")["wrong_now_and_then"]
    assert (row["status"], row["mean_ms"]) == ("wrong", "")


def test_a_file_that_changes_when_it_is_imported_ends(run, tmp_path):
    run(["right"], "mode=check")
    selfish = tmp_path / "selfish.py"
    selfish.write_text(
        "import time\nopen(__file__, 'a').write(f'# {time.time()}\\n')\ndef f(x):\n    return x * 2\n"
    )
    words = [f"op.variants.right.target={selfish}:f", "mode=check"]
    row = run(["right"], *words)["right"]
    assert row["status"] == "checked"  # one import, and the hash is of what was imported
    twice = [f"op.variants.{name}.target={selfish}:f" for name in ("right", "wrong")]
    rows = run(["right", "wrong"], *twice, "mode=check")
    assert (
        "changes each time it is imported" in rows["wrong"]["reason"] or rows["wrong"]["status"] == "checked"
    )


def test_a_failing_reference_is_named_and_not_blamed_on_a_variant(run, tmp_path):
    (tmp_path / "broken.py").write_text("def f(x):\n    raise ValueError('no definition')\n")
    rows = run(["right", "wrong"], f"op.reference.target={tmp_path / 'broken.py'}:f")
    assert {(r["status"], r["stage"]) for r in rows.values()} == {("error", "inputs")}
    assert "the op's reference failed: ValueError: no definition" in rows["right"]["reason"]


def test_only_ok_rows_carry_times(run):
    rows = run(["right", "wrong", "raises"])
    assert float(rows["right"]["mean_ms"]) > 0
    assert rows["right"]["trials"] == "8"
    for name in ("wrong", "raises"):
        times = [c for c in COLUMNS if c.endswith("_ms") and c not in ("build_ms", "first_call_ms")]
        assert {rows[name][c] for c in [*times, "speedup", "trials", "gbps", "percent_of_limit"]} == {""}


def test_a_hang_is_ended_and_costs_its_own_row_only(run):
    rows = run(["right", "hangs", "wrong"], "limits.check_s=3")
    assert (rows["hangs"]["status"], rows["hangs"]["stage"]) == ("timeout", "check")
    assert "limits.check_s" in rows["hangs"]["reason"]
    assert rows["right"]["status"] == "ok"
    assert rows["wrong"]["status"] == "wrong"


def test_the_folder_holds_what_it_should(run):
    rows = run(["right", "floods"])
    folder = run.outcome.folder
    names = {path.name for path in folder.iterdir()}
    assert {"results.csv", "samples.csv", "environment.json", "config.yaml", "run.log", "report.md"} <= names
    assert 1 << 19 < (folder / "run.log").stat().st_size < 3 << 20
    with open(folder / "results.csv") as table:
        assert table.readline().strip() == ",".join(COLUMNS)
    with open(folder / "samples.csv", newline="") as table:
        samples = list(csv.DictReader(table))
    assert tuple(samples[0]) == SAMPLE_COLUMNS
    own = [float(s["device_us"]) for s in samples if s["row_id"] == rows["right"]["row_id"]]
    assert sum(own) / len(own) / 1e3 == pytest.approx(float(rows["right"]["mean_ms"]), rel=1e-6)
    facts = json.loads((folder / "environment.json").read_text())
    assert {"torch", "cpu", "git", "packages", "seed", "command"} <= set(facts)
    assert "double n=1000 float32" in (folder / "report.md").read_text()


def test_derived_columns(run):
    row = run(["right"], "shape.n=250000")["right"]
    seconds = float(row["mean_ms"]) / 1e3
    assert float(row["gbps"]) == pytest.approx(2e6 / seconds / 1e9, rel=1e-6)
    assert float(row["tflops"]) == pytest.approx(2.5e5 / seconds / 1e12, rel=1e-6)
    assert float(row["intensity"]) == pytest.approx(1 / 8)
    assert float(row["percent_of_limit"]) == pytest.approx(
        100 * float(row["limit_ms"]) / float(row["mean_ms"]), rel=1e-6
    )
    assert float(row["speedup"]) == 1.0


def test_check_mode_times_nothing(run):
    rows = run(["right", "wrong"], "mode=check")
    assert rows["right"]["status"] == "checked"
    assert rows["right"]["mean_ms"] == ""
    assert rows["wrong"]["status"] == "wrong"


def test_the_same_seed_gives_the_same_errors(run):
    first = run(["right"], "seed=5", "mode=check")["right"]
    again = run(["right"], "seed=5", "mode=check")["right"]
    other = run(["right"], "seed=6", "mode=check")["right"]
    assert first["seed"] == "5"
    assert first["case_id"] == again["case_id"] == other["case_id"]
    assert first["row_id"] != again["row_id"]


def test_an_edited_kernel_is_measured_as_edited(run, tmp_path):
    before = run(["right", "wrong"], "mode=check")
    assert before["wrong"]["status"] == "wrong"
    file = tmp_path / "faults.py"
    file.write_text(file.read_text().replace("x * 2.001", "x * 2"))
    after = run(["right", "wrong"], "mode=check")
    assert after["wrong"]["status"] == "checked"
    assert after["wrong"]["source_sha"] != before["wrong"]["source_sha"]


def test_a_run_does_not_import_torch_in_the_parent(tmp_path):
    code = f"""
        import sys
        from runner.cli import main
        code = main(["op=add", "variant=builtin", "device=cpu", "shape.rows=2", "shape.cols=2", "trials=2",
                     "output={tmp_path}"])
        assert "torch" not in sys.modules, "the parent imported torch"
        sys.exit(code)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert list(Path(tmp_path).rglob("results.csv"))
