"""A run that was cut short is finished into its own folder, or refused with what changed meanwhile."""

from __future__ import annotations

import csv
import json
import stat

import pytest

from runner import cli, driver
from runner.command import lost
from runner.config.compose import compose
from runner.process import supervisor
from runner.record import folder as record
from runner.record import planned
from tests.test_supervisor import FAKE, write_op

CODES = {
    "first": "",
    "wrong": "answer.update(status='wrong', reason='so', stage='check')",
    "raises": "answer.update(status='error', reason='so', stage='check')",
    "second": "",
    "third": "",
}


@pytest.fixture(autouse=True)
def fake(monkeypatch, tmp_path):
    driver.shutdown()  # a real worker of another test
    monkeypatch.setattr(supervisor, "_COMMAND", FAKE)
    monkeypatch.setattr(supervisor, "_JUDGE", FAKE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # no device lock of others is waited for
    yield
    driver.shutdown()


@pytest.fixture
def conf(tmp_path):
    return write_op(tmp_path, CODES)


def words(conf, *more):
    fixed = ["op=double", "variant=all", "device=cpu", "trials=3", f"output={conf.parent / 'out'}"]
    return ["--config-dir", str(conf), *fixed, *more]


def started(conf, *more):
    """The folder of a whole run."""
    assert cli.main(words(conf, *more)) == 1
    (folder,) = (conf.parent / "out" / "double").iterdir()
    return folder


def rows_in(folder):
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def facts_of(rows):
    return sorted(
        (r["row_id"], r["case_id"], r["variant"], r["params"], r["status"], r["seed"]) for r in rows
    )


def cut(path, keep: int, torn: str = ""):
    """The table as a killed writer left it."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:keep]) + torn, "utf-8")


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 5])
def test_what_is_missing_is_run_and_what_is_there_is_kept(conf, capsys, keep):
    folder = started(conf)
    whole, text = facts_of(rows_in(folder)), (folder / "results.csv").read_text()
    cut(folder / "results.csv", keep, torn="1,torn")
    cut(folder / "samples.csv", 3, torn="4")
    (folder / "report.md").unlink()
    assert cli.main([f"resume={folder}"]) == 1
    assert facts_of(rows_in(folder)) == whole
    assert (folder / "results.csv").read_text().startswith("".join(text.splitlines(keepends=True)[:keep]))
    with open(folder / "samples.csv", newline="") as file:
        samples = [sample["row_id"] for sample in csv.DictReader(file)]
    resumed = {row["row_id"] for row in rows_in(folder)[max(keep - 1, 0) :] if row["status"] == "ok"}
    assert all(samples.count(row_id) == 3 for row_id in resumed)
    assert set(samples) <= {row["row_id"] for row in rows_in(folder)}
    assert (folder / "report.md").is_file()
    facts = json.loads((folder / "environment.json").read_text())
    assert str(facts["seed"]) == rows_in(folder)[0]["seed"]
    assert "torn" not in (folder / "results.csv").read_text() + capsys.readouterr().err


def test_the_baselines_time_is_taken_from_its_row(conf):
    folder = started(conf)
    table = folder / "results.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if ",second," not in line))
    cli.main([f"resume={folder}"])
    (row,) = [row for row in rows_in(folder) if row["variant"] == "second"]
    assert row["speedup"] == "1" and "the baseline was timed before the run was resumed" in row["note"]


def test_a_finished_folder_says_so(conf, capsys):
    folder = started(conf)
    before = (folder / "results.csv").read_bytes()
    capsys.readouterr()
    assert cli.main([f"resume={folder}"]) == 1
    assert f"runner: nothing is left to do in {folder}: it has all 5 rows" in capsys.readouterr().err
    assert (folder / "results.csv").read_bytes() == before


def refused(capsys, folder, *more):
    capsys.readouterr()
    assert cli.main([f"resume={folder}", *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_changed_is_named(conf, capsys, monkeypatch):
    folder = started(conf)
    cut(folder / "results.csv", 2)
    source, op = conf.parent / "second.py", conf / "op" / "double.yaml"
    for path in (source, op):
        text = path.read_text()
        path.write_text(text + "\n")
        assert refused(capsys, folder) == (
            f"runner: resume={folder}: since it was started {path} changed; put that back, or start a new run"
        )
        path.write_text(text)
    source.rename(source.with_suffix(".old"))
    assert f"{source} is gone" in refused(capsys, folder)
    source.with_suffix(".old").rename(source)
    monkeypatch.setenv("TORCH_LOGS", "x")
    assert "variable TORCH_LOGS was absent and is x" in refused(capsys, folder)
    monkeypatch.delenv("TORCH_LOGS")
    monkeypatch.setattr(record, "_packages", lambda: {"torch": "0.1"})
    line = refused(capsys, folder)
    assert "package " in line and " more; put that back" in line
    assert len(rows_in(folder)) == 1


def test_another_device_is_refused(conf, capsys):
    folder = started(conf)
    cut(folder / "results.csv", 2)
    path = folder / "environment.json"
    facts = json.loads(path.read_text()) | {"torch": "2", "device_uuid": "GPU-1"}
    path.write_text(json.dumps(facts))
    assert "since it was started device_uuid was GPU-1 and is " in refused(capsys, folder)
    assert len(rows_in(folder)) == 1


def test_other_words_are_refused(conf, capsys, tmp_path):
    folder = started(conf)
    assert "repeats what its own command line said: leave out trials=5 -m" in refused(
        capsys, folder, "trials=5", "-m"
    )
    assert "one folder at a time" in refused(capsys, folder, "resume=x")
    assert "name the folder of a run" in refused(capsys, "")
    assert "there is no such folder" in refused(capsys, tmp_path / "absent")
    assert "no planned.json in it" in refused(capsys, tmp_path)
    moved = folder.rename(folder.with_name("renamed"))
    assert f"the folder was {folder.name} and is named otherwise" in refused(capsys, moved)


def test_a_folder_in_use_is_refused(conf, capsys):
    folder = started(conf)
    with planned.in_use(folder):
        assert f"{folder} is in use by a run that is alive" in refused(capsys, folder)
    assert cli.main([f"resume={folder}"]) == 1
    assert not (folder / planned.LOCK).exists()


def test_the_plan_is_its_owners_alone(conf):
    folder = started(conf)
    assert stat.S_IMODE((folder / planned.NAME).stat().st_mode) == 0o600


def test_while_a_variant_runs_a_drawn_seed_is_in_no_other_file(conf, monkeypatch):
    told, out = conf.parent / "seen", conf.parent / "out"
    code = f"""
from pathlib import Path
files = [path for path in Path({str(out)!r}).rglob("*") if path.is_file()]
Path({str(told)!r}).write_text(" ".join(path.name for path in files if "777" * 3 in path.read_text()))
"""
    (conf.parent / "first.py").write_text(f"def f(x): ...\n{code}")
    monkeypatch.setattr("secrets.randbelow", lambda below: 777777777)
    folder = started(conf)
    assert told.read_text() == planned.NAME
    assert "seed: 777777777\n" in (folder / "config.yaml").read_text()
    assert {row["seed"] for row in rows_in(folder)} == {"777777777"}


def test_settings_come_back_as_they_were(conf):
    for more in (
        ["seed=5", "limits.check_s=1e-3", "measure=quick"],
        ["mode=check", "direction=forward", "shapes=smoke", "why='a: b # c'"],
        ["shape.n=7", "measure.precision=1e-5", "trials=auto"],
    ):
        settings = compose([*words(conf)[2:], *more], [str(conf)])
        assert planned.settings_of(planned._job(settings)) == settings


def test_a_sweep(conf, capsys):
    assert cli.main(words(conf, "-m", "shape.n=1,2,3", "timing=cold")) == 1
    (sweep,) = (conf.parent / "out" / "double").iterdir()
    whole = facts_of(rows_in(sweep))
    assert len(whole) == 15
    cut(sweep / "1_shape.n=2" / "results.csv", 3)
    for path in (sweep / "2_shape.n=3").iterdir():
        if path.is_file():
            path.unlink()
    (sweep / "results.csv").unlink()
    untouched = (sweep / "0_shape.n=1" / "samples.csv").read_bytes()
    assert cli.main([f"resume={sweep}"]) == 1
    assert facts_of(rows_in(sweep)) == whole
    assert (sweep / "0_shape.n=1" / "samples.csv").read_bytes() == untouched
    assert "job 2/3" in capsys.readouterr().err
    assert "one job of a sweep" in refused(capsys, sweep / "1_shape.n=2")
    with planned.in_use(sweep):
        assert "is in use by a run" in refused(capsys, sweep)


def test_the_rows_of_a_dead_job_are_run_again(conf):
    assert cli.main(words(conf, "-m", "shape.n=1,2", "timing=cold")) == 1
    (sweep,) = (conf.parent / "out" / "double").iterdir()
    whole, job = facts_of(rows_in(sweep)), sweep / "1_shape.n=2"
    cut(job / "results.csv", 3)
    lost.leave_word(job, "its process died of signal 9")
    jobs = {n: planned.settings_of(one) for n, one in planned.read(sweep)["jobs"].items()}
    lost.make_up(sweep, jobs, lost.find(sweep, dict.fromkeys(jobs, 5)))
    assert [row["stage"] for row in rows_in(job)].count("job") == 3
    assert cli.main([f"resume={sweep}"]) == 1
    assert facts_of(rows_in(sweep)) == whole
    assert not (job / lost.WORD).exists()


def test_a_job_that_never_began(conf):
    assert cli.main(words(conf, "-m", "shape.n=1,2")) == 1
    (sweep,) = (conf.parent / "out" / "double").iterdir()
    whole = facts_of(rows_in(sweep))
    for path in sorted((sweep / "1_shape.n=2").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (sweep / "1_shape.n=2").rmdir()
    assert cli.main([f"resume={sweep}"]) == 1
    assert facts_of(rows_in(sweep)) == whole


def test_a_table_that_a_spreadsheet_saved_is_read(conf, capsys):
    folder = started(conf)
    table = folder / "results.csv"
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes().replace(b"\n", b"\r\n"))
    capsys.readouterr()
    assert cli.main([f"resume={folder}"]) == 1  # a row of it is wrong
    assert "nothing is left to do" in capsys.readouterr().err


@pytest.mark.parametrize("left_out", ["name", "files", "host", "jobs"])
def test_a_plan_that_was_edited_is_a_sentence(conf, capsys, left_out):
    folder = started(conf)
    kept = json.loads((folder / planned.NAME).read_text())
    del kept[left_out]
    (folder / planned.NAME).write_text(json.dumps(kept))
    assert "not as the runner wrote it" in refused(capsys, folder)
