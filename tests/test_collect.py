"""The tables of a sweep from those of its jobs, also of jobs that did not come to their end."""

from __future__ import annotations

import csv
import json

import pytest

from runner import driver
from runner.collect import collect_jobs, join
from runner.columns import COLUMNS, SAMPLE_COLUMNS
from runner.model import Refusal


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
