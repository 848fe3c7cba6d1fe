"""Two runs side by side: what is matched, what is said of it, and the exit code."""

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from runner.compare import __main__ as command
from runner.compare import comparison, pairs
from runner.compare.ratio import Ratio
from runner.model import Refusal
from runner.record import kept
from tests.kept_runs import row, write
from tests.support import ROOT


@pytest.fixture
def main(capsys):
    """(exit code, standard output, standard error) of a comparison."""

    def run(*words):
        code = command.main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def before(tmp_path):
    return write(tmp_path / "a", [row("builtin", 100), row("naive", 900), row("cpp", 0)])


def verdicts(found):
    return {pair.b["variant"]: pair.verdict for pair in found.pairs}


def test_slower_faster_same_broken_and_fixed(tmp_path, before, main):
    rows = [row("builtin", 104), row("naive", 0, status="wrong", stage="check", reason="off"), row("cpp", 50)]
    after = write(tmp_path / "b", rows)
    found = pairs.compare(str(before), str(after))
    assert verdicts(found) == {"builtin": "slower", "naive": "broken", "cpp": "fixed"}
    assert [pair.b["variant"] for pair in found.regressions()] == ["builtin", "naive"]
    code, out, _ = main(before, after)
    assert code == 1 and "2 regressions beyond 1 %: 1 broken, 1 slower, 1 fixed" in out
    assert "wrong at check: off" in out


def test_the_same_code_twice(tmp_path, before, main):
    after = write(tmp_path / "b", [row("builtin", 100), row("naive", 900), row("cpp", 0)])
    code, out, _ = main(before, after, "--all")
    assert code == 0 and "no regression beyond 1 %: 2 same, 1 untimed" in out
    assert len([line for line in out.splitlines() if line.startswith("gelu")]) == 3
    assert "gelu" not in main(before, after)[1]


@pytest.mark.parametrize("threshold, code", [("0.03", 1), ("3%", 1), ("0.05", 0), ("5%", 0)])
def test_the_threshold(tmp_path, before, main, threshold, code):
    after = write(tmp_path / "b", [row("builtin", 104), row("naive", 900), row("cpp", 0)])
    assert main(before, after, "--threshold", threshold)[0] == code


def test_what_makes_two_rows_the_same_experiment(tmp_path):
    base = {"params": {"w": 4}}
    a = write(tmp_path / "a", [row(**base)])
    others = {
        "variant": "other",
        "params": {"w": 8},
        "attrs": {"p": 1},
        "shape": {"rows": 1, "cols": 1},
        "layout": "offset1",
        "dtype": "bfloat16",
        "direction": "backward",
        "op": "add",
        "timing": "warm",
    }
    for name, value in others.items():
        b = write(tmp_path / name, [row(**base | {name: value})])
        with pytest.raises(Refusal, match=f"no experiment in common: they differ in {name}"):
            pairs.compare(str(a), str(b))


def test_a_row_that_failed_is_matched_with_every_timing(tmp_path):
    a = write(tmp_path / "a", [row(), row(timing="warm")])
    found = pairs.compare(str(a), str(write(tmp_path / "b", [row(mean_us=0)])))
    assert [pair.verdict for pair in found.pairs] == ["broken", "broken"] and found.only == ([], [])


def test_rows_of_one_side_only_are_named(tmp_path, before, main):
    after = write(tmp_path / "b", [row("builtin", 100), row("tuned", 50)])
    code, out, _ = main(before, after)
    assert code == 0 and "2 only in A, 1 only in B" in out
    assert "only in B: gelu cols=64 rows=64 float32: tuned" in out


def test_the_newest_of_several_runs_counts(tmp_path):
    many = tmp_path / "many"
    write(many / "2026-01-02", [row(mean_us=100)])
    write(many / "2026-01-01", [row(mean_us=200)])
    b = write(tmp_path / "b", [row(mean_us=100)])
    assert verdicts(pairs.compare(str(many), str(b))) == {"builtin": "same"}


def test_without_samples_the_intervals_of_the_rows_count(tmp_path, before, main):
    after = write(tmp_path / "b", [row("builtin", 104), row("naive", 900)], samples=False)
    code, out, _ = main(before, after)
    assert code == 1 and "samples were not kept of all of B" in out


def test_other_cards_and_versions_are_said_first(tmp_path, before, main):
    other = {"device": "NVIDIA H100", "device_uuid": "card-9"}
    after = write(tmp_path / "b", [row(**other)], torch="2.12.0", git={"commit": "b" * 40, "modified": True})
    lines = main(before, after)[1].splitlines()
    assert lines[2].startswith("different devices") and "A NVIDIA H200, B NVIDIA H100" in lines[2]
    assert lines[3] == "different environments: torch A 2.11.0, B 2.12.0"
    assert lines[4] == f"commits: A {'a' * 12}, B {'b' * 12} with changes"
    twin = write(tmp_path / "c", [row(device_uuid="card-2")])
    assert "another card of the same kind" in main(before, twin)[1]


def test_markdown_folds_what_did_not_change(tmp_path, before, main):
    after = write(tmp_path / "b", [row("builtin", 104), row("naive", 900)])
    code, out, _ = main(before, after, "--markdown")
    open_, folded = out.split("<details>")
    assert code == 1 and "| 1.04" in open_ and "| slower | the same sources |" in open_
    assert "| naive |" in folded and folded.rstrip().endswith("only in A: gelu cols=64 rows=64 float32: cpp")
    assert "B / A | 99.5 % interval |" in open_


def test_an_interval_that_says_nothing_is_called_unknown():
    assert comparison._interval(Ratio(1.0, 1e-8, 1e8, "ambiguous")) == "unknown"
    assert comparison._interval(Ratio(1.0, 0.99, 1.01, "same")) == "0.990 - 1.010"


def test_a_name_below_outputs_is_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert [table.path.parent.name for table in kept.tables("published/h200/headline")] == ["headline"]
    assert len(kept.tables("published/h200")) >= 2
    assert kept.tables(str(ROOT / "outputs/published/h200/headline/results.csv"))


def test_bad_input_is_one_sentence(tmp_path, before, main):
    def sentence(*words):
        code, out, err = main(*words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    assert "nope: there is no such file or folder" in sentence(before, "nope")
    (tmp_path / "empty").mkdir()
    assert "no results.csv in it" in sentence(before, tmp_path / "empty")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert "its header differs" in sentence(before, tmp_path / "x.csv")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\n")
    assert "cannot be read" in sentence(before, tmp_path / "x.csv")
    old = write(tmp_path / "old", [row(schema_version=0)])
    assert "schema version 0; this runner reads 1" in sentence(before, old)
    bare = write(tmp_path / "bare", [])
    assert "B has no rows" in sentence(before, bare)


@pytest.mark.parametrize("threshold", ["-1", "5", "much"])
def test_a_threshold_that_may_mean_two_things(capsys, threshold):
    with pytest.raises(SystemExit) as stop:
        command.main(["a", "b", "--threshold", threshold])
    assert stop.value.code == 2
    assert f"{threshold}: write it as 5% or 0.05" in capsys.readouterr().err


def test_on_a_narrow_terminal_nothing_is_cut(tmp_path, before):
    after = write(tmp_path / "b", [row("builtin", 104), row("naive", 0, status="wrong", reason="off by far")])
    found = pairs.compare(str(before), str(after))
    for width in (80, 160):
        file = io.StringIO()
        console = Console(width=width, file=file, force_terminal=True, no_color=True, highlight=False)
        comparison.print_tables(found, console=console)
        lines = re.sub(r"\x1b\[\d*m", "", file.getvalue()).splitlines()
        assert max(map(len, lines[2:])) <= width and not any("…" in line for line in lines)
        assert ("gelu cols=64 rows=64 float32: builtin" in [line.rstrip() for line in lines]) is (width == 80)


def test_torch_is_not_imported():
    code = "import sys; from runner.compare.__main__ import main; main(); assert 'torch' not in sys.modules"
    words = ["published/h200/headline", "published/h200/headline"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
