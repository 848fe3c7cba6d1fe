"""The tables of a sweep from those of its jobs, also of jobs that did not come to their end."""

from __future__ import annotations

import csv
import json

import pytest

from runner import driver
from runner.collect import main
from runner.model import Refusal
from runner.record import kept
from runner.record.columns import COLUMNS, SAMPLE_COLUMNS
from runner.record.joined import collect_jobs, join
from tests.kept_runs import row, write


def job(sweep, name, facts=None, rows=(), samples=True):
    folder = sweep / name
    folder.mkdir(parents=True)
    for file, columns in (("results.csv", COLUMNS), *([("samples.csv", SAMPLE_COLUMNS)] if samples else [])):
        with open(folder / file, "w", newline="") as out:
            writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    if facts is not None:
        (folder / "environment.json").write_text(json.dumps(facts))
    return folder


def rows_of(sweep, name="results.csv"):
    with open(sweep / name, newline="") as file:
        return [row["row_id"] for row in csv.DictReader(file)]


def test_jobs_are_joined_in_their_order(tmp_path):
    for number in (10, 2, 1):
        job(tmp_path, f"{number}_seed={number}", {"seed": number, "host": "h"}, [{"row_id": f"r{number}"}])
    collect_jobs(tmp_path)
    assert rows_of(tmp_path) == rows_of(tmp_path, "samples.csv") == ["r1", "r2", "r10"]
    facts = json.loads((tmp_path / "environment.json").read_text())
    assert facts == {"host": "h", "differs": {"seed": {"1_seed=1": 1, "2_seed=2": 2, "10_seed=10": 10}}}


def test_jobs_that_were_interrupted_early_add_what_they_have(tmp_path):
    job(tmp_path, "0_a", {"seed": 1}, [{"row_id": "whole"}])
    job(tmp_path, "1_b", None, [{"row_id": "no_environment"}], samples=False)
    (tmp_path / "2_c").mkdir()
    (tmp_path / "2_c" / "results.csv").write_text("")
    (tmp_path / "3_d").mkdir()
    collect_jobs(tmp_path)
    assert rows_of(tmp_path) == ["whole", "no_environment"]
    assert rows_of(tmp_path, "samples.csv") == ["whole"]
    assert json.loads((tmp_path / "environment.json").read_text()) == {"seed": 1}


def test_a_sweep_without_any_environment_has_tables(tmp_path):
    job(tmp_path, "0_a")
    collect_jobs(tmp_path)
    assert rows_of(tmp_path) == [] and json.loads((tmp_path / "environment.json").read_text()) == {}


def test_another_header_is_refused_and_writes_nothing(tmp_path):
    (tmp_path / "old.csv").write_text("a,b\n1,2\n")
    with pytest.raises(Refusal, match=r"old\.csv was written by another version"):
        join([tmp_path / "old.csv"], tmp_path / "joined.csv", ["a", "c"])
    assert not (tmp_path / "joined.csv").exists()


def test_a_sweep_that_was_removed_is_a_sentence(tmp_path):
    with pytest.raises(Refusal, match="the folder was removed while the run worked"):
        driver.finish(tmp_path / "gone", [])


def collected(*words, into):
    code = main([*map(str, words), "--into", str(into)])
    with open(into / "results.csv", newline="") as file:
        return code, list(csv.DictReader(file))


def test_folders_become_one_table_in_which_the_newest_row_counts(tmp_path, capsys):
    old = write(tmp_path / "2026-01-01", [row("builtin", 100), row("naive", 900)])
    new = write(tmp_path / "2026-01-02", [row("builtin", 50), row("cpp", 70)], torch="2.12")
    code, rows = collected(old, new, into=tmp_path / "all")
    assert code == 0 and "3 rows, 1 older row left out" in capsys.readouterr().out
    found = {one["variant"]: (one["run_id"], round(float(one["mean_ms"]), 2)) for one in rows}
    assert found == {"builtin": (new.name, 0.05), "naive": (old.name, 0.9), "cpp": (new.name, 0.07)}
    samples = rows_of(tmp_path / "all", "samples.csv")
    assert len(samples) == 3 * 40 and set(samples) == {one["row_id"] for one in rows}


def test_a_row_that_its_job_did_not_come_to_counts_where_no_other_is(tmp_path):
    lost = {"mean_us": 0, "status": "crashed", "stage": "job", "reason": "killed"}
    old = write(tmp_path / "2026-01-01", [row("builtin", 100), row("cuda", 0, status="checked", stage="")])
    lost_too = [row(name, **lost) for name in ("naive", "cpp", "cuda")]
    words = [row("builtin", **lost, device="cuda:0"), *lost_too]
    new = write(tmp_path / "2026-01-02", words)
    last = write(tmp_path / "2026-01-03", [row("cpp", **lost | {"stage": "check"})])
    _, rows = collected(old, new, last, into=tmp_path / "all")
    found = {one["variant"]: (one["run_id"], one["stage"]) for one in rows}
    assert found == {"builtin": (old.name, ""), "cuda": (old.name, "")} | {
        "naive": (new.name, "job"),
        "cpp": (last.name, "check"),
    }


def test_where_each_row_came_from_is_kept(tmp_path):
    write(tmp_path / "2026-01-01", [row("builtin", 100), row("naive", 900)])
    write(tmp_path / "2026-01-02", [row("builtin", 50)], torch="2.12", host="other")
    collected(tmp_path, into=tmp_path.with_name(tmp_path.name + "-all"))
    folder = tmp_path.with_name(tmp_path.name + "-all")
    with open(folder / "sources.csv", newline="") as file:
        sources = {one["run_id"]: one for one in csv.DictReader(file)}
    assert [(one["rows"], one["kept"], one["host"]) for one in sources.values()] == [
        ("2", "1", "h"),
        ("1", "1", "other"),
    ]
    assert sources["2026-01-01"]["table"] == str(tmp_path / "2026-01-01" / "results.csv")
    facts = json.loads((folder / "environment.json").read_text())
    assert facts["driver"] == "580.1"
    assert facts["differs"]["torch"] == {"2026-01-01": "2.11.0", "2026-01-02": "2.12"}
    (table,) = kept.tables(str(folder))
    assert [table.fact(one, "torch") for one in table.rows] == ["2.11.0", "2.12"]


def test_a_collection_is_collected_again_and_a_run_given_twice_counts_once(tmp_path):
    a = write(tmp_path / "2026-01-01", [row("builtin", 100)])
    b = write(tmp_path / "2026-01-02", [row("naive", 900)])
    collected(a, into=tmp_path / "one")
    _, rows = collected(tmp_path / "one", a, b, a, into=tmp_path / "two")
    assert [one["variant"] for one in rows] == ["builtin", "naive"]
    assert len(rows_of(tmp_path / "two", "samples.csv")) == 80


def test_another_device_and_another_timing_are_no_duplicates(tmp_path):
    a = write(tmp_path / "2026-01-01", [row(), row(timing="warm")])
    b = write(tmp_path / "2026-01-02", [row(device="NVIDIA H100")])
    assert len(collected(a, b, into=tmp_path / "all")[1]) == 3


def test_a_failure_of_today_takes_the_place_of_yesterdays_times(tmp_path):
    a = write(tmp_path / "2026-01-01", [row(), row(timing="warm")])
    b = write(tmp_path / "2026-01-02", [row(mean_us=0)])
    assert [one["status"] for one in collected(a, b, into=tmp_path / "all")[1]] == ["error"]
    c = write(tmp_path / "2026-01-03", [row()])
    assert [one["status"] for one in collected(a, b, c, into=tmp_path / "fixed")[1]] == ["ok"]


def test_a_check_takes_no_times_away(tmp_path):
    a = write(tmp_path / "2026-01-01", [row(), row("cpp", 0, status="skipped")])
    checked = {"status": "checked", "stage": "", "reason": ""}
    b = write(tmp_path / "2026-01-02", [row(mean_us=0, **checked), row("cpp", 0, **checked)])
    found = collected(a, b, into=tmp_path / "all")[1]
    assert [(one["variant"], one["status"]) for one in found] == [("builtin", "ok"), ("cpp", "checked")]


def test_what_cannot_be_collected_is_a_sentence(tmp_path, capsys):
    a = write(tmp_path / "a", [row()])
    old = write(tmp_path / "old", [row(schema_version=0)])
    assert main([str(a), str(old), "--into", str(tmp_path / "x")]) == 2
    assert "schema version 0; this runner reads 1" in capsys.readouterr().err
    assert main([str(a), "--into", str(a)]) == 2
    assert "holds files already" in capsys.readouterr().err
    assert main(["nowhere", "--into", str(tmp_path / "y")]) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_without_samples(tmp_path):
    a = write(tmp_path / "a", [row()])
    assert main([str(a), "--no-samples", "--into", str(tmp_path / "x")]) == 0
    assert not (tmp_path / "x" / "samples.csv").exists() and (tmp_path / "x" / "report.md").is_file()
