"""The files of a run: each row a whole line, whatever its words and however full the disk."""

from __future__ import annotations

import csv
import json
import resource
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from runner.files import ROOT
from runner.model import Refusal
from runner.record import folder
from runner.record.columns import COLUMNS, SAMPLE_COLUMNS, TRAP_COLUMNS
from runner.record.folder import Record

SETTINGS = SimpleNamespace(resolved_yaml="op: double\n", command=("op=double",), config_files=(), seed=1)
SETTINGS.experiment, SETTINGS.why = "doubles", "how doubling does"
SERIES = {"rounds": range(200), "turns": range(200), "start_ns": range(200)}
SERIES |= {"device_us": [1.0] * 200, "host_us": [2.0] * 200}


@pytest.fixture
def run(tmp_path):
    one = Record(folder.claim(tmp_path / "out"), SETTINGS)
    yield one
    one.close()


def row(**words):
    return dict.fromkeys(COLUMNS, "") | {"row_id": "r", "timing": "cold", "variant": "v"} | words


def lines(run, name="results.csv"):
    with open(run.folder / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@contextmanager
def a_disk_of(size: int):
    """Files may not grow beyond `size` bytes: a write takes what fits, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_row_is_one_line_for_every_reader(run, end):
    run.add(row(reason=f"a{end}b"))
    text = (run.folder / "results.csv").read_text("utf-8")
    assert len(text.splitlines()) == 2
    assert lines(run)[0]["reason"].split() == ["a", "b"]


def test_what_cannot_be_printed_is_spelled(run):
    run.add(row(reason="a\0b\x1b[31m\x7f \udcff", note="é 漢"))
    assert lines(run)[0]["reason"] == r"a\x00b\x1b[31m\x7f \udcff"
    assert lines(run)[0]["note"] == "é 漢"


def test_words_cannot_move_a_terminals_cursor_or_turn_its_lines(run):
    found = row(reason="no\x1b]0;owned\x07\x1b[2J\n\u202ehonest ok", note="\rdone")
    run.add(found)  # what is shown as it comes is what was written
    assert found["reason"] == r"no\x1b]0;owned\x07\x1b[2J" + "\n" + r"\u202ehonest ok"
    assert found["note"] == " done"
    assert lines(run)[0]["reason"] == r"no\x1b]0;owned\x07\x1b[2J \u202ehonest ok"


def test_what_others_wrote_between_is_not_there_in_the_end(run):
    run.add(row(row_id="a", status="ok", mean_ms=1.5, reason="=1+1"))
    with open(run.folder / "results.csv", "a") as file:
        file.write("1,forged\n")
    run.add(row(row_id="b", status="wrong", attrs={"dim": -1}))
    run.tell_seed(SETTINGS)
    assert [(each["row_id"], each["status"], each["seed"]) for each in lines(run)] == [
        ("a", "ok", "1"),
        ("b", "wrong", "1"),
    ]
    assert (lines(run)[0]["mean_ms"], lines(run)[0]["reason"]) == ("1.5", "'=1+1")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t="])
def test_words_that_a_spreadsheet_would_run_stay_words(run, start):
    run.add(row(reason=f"{start}1", mean_ms=-1.5))
    assert lines(run)[0]["reason"].startswith("'")
    assert lines(run)[0]["mean_ms"] == "-1.5"


def test_what_comes_from_outside_is_the_same_cells_in_pandas(run):
    pandas = pytest.importorskip("pandas")
    odd = ['=cmd|"/c calc"!A1', "a,b;c\td", 'quo"te', "line\nbreak\r", "nul\0", "é 漢", "'", "+1", "-", "@x"]
    for text in odd:
        run.add(row(reason=text, note=text, variant="v", attrs={"a": text}))
    frame = pandas.read_csv(run.folder / "results.csv", keep_default_na=False)
    assert len(frame) == len(odd) and list(frame.columns) == list(COLUMNS)
    assert list(frame["reason"]) == [one["reason"] for one in lines(run)]
    assert not any(cell[:1] in "=+-@\t" for cell in frame["reason"] if cell)
    assert [json.loads(cell)["a"] for cell in frame["attrs"]] == odd


def test_long_words_are_cut(run):
    one = row(reason="x" * 3000, note="y" * 2000)
    run.add(one)
    (read,) = lines(run)
    assert read["reason"] == one["reason"] == "x" * 1997 + "..."
    assert read["note"] == "y" * 2000


def test_the_longest_words_stay_readable(run):
    run.add(row(reason="\udcff\0" * 1000_000, note="\udcff" * 1000_000))
    assert len(lines(run)[0]["reason"]) < csv.field_size_limit()


def test_a_full_disk_is_a_sentence_and_rows_stay_whole(run):
    run.add(row(reason="first"))
    size = (run.folder / "results.csv").stat().st_size
    with (
        a_disk_of(size + 50),
        pytest.raises(Refusal, match=r"can no longer be written \(File"),
    ):
        run.add(row(reason="second " * 20))
    assert (run.folder / "results.csv").stat().st_size == size
    run.add(row(reason="third"))  # there is space again
    assert [one["reason"] for one in lines(run)] == ["first", "third"]


def test_samples_of_a_row_are_all_there_or_none(run):
    run.samples(row(row_id="a"), SERIES, [], {3})
    with a_disk_of(9000), pytest.raises(Refusal):
        run.samples(row(row_id="b"), SERIES, [], set())
    text = (run.folder / "samples.csv").read_text()
    assert text.endswith("\n") and len(text.splitlines()) == 201
    assert {one["row_id"] for one in lines(run, "samples.csv")} == {"a"}
    assert tuple(lines(run, "samples.csv")[0]) == SAMPLE_COLUMNS
    assert {one["round"] for one in lines(run, "samples.csv") if one["checked"] == "true"} == {"3"}


def test_traps_are_appended_under_one_header(run):
    for name in ("a", "b"):
        run.traps(row(variant=name), [("right", "=so", 2.0), ("wrong", "not so", 1.0)])
    read = lines(run, "traps.csv")
    assert [(one["variant"], one["over_right"]) for one in read] == [
        ("a", "1"), ("a", "0.5"), ("b", "1"), ("b", "0.5")]  # fmt: skip
    assert tuple(read[0]) == TRAP_COLUMNS and read[0]["lesson"] == "'=so"


def test_a_removed_folder_is_a_sentence(run):
    run.add(row())
    run.folder.rename(run.folder.with_name("elsewhere"))
    with pytest.raises(Refusal, match="the folder was removed while the run worked"):
        run.add(row())
    with pytest.raises(Refusal, match="the folder was removed while the run worked"):
        run.environment(SETTINGS, {})


def test_a_text_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.md"
    folder.write_whole(path, "before\udcff\n")
    with a_disk_of(1000), pytest.raises(OSError, match="File too large"):
        folder.write_whole(path, "x" * 5000)
    assert path.read_text() == "before\\udcff\n"
    assert [one.name for one in tmp_path.iterdir()] == ["report.md"]


def test_the_environment_is_written(run):
    run.environment(SETTINGS, {"torch": "2", "odd": "\udcff"})
    facts = json.loads((run.folder / "environment.json").read_text())
    assert facts["torch"] == "2" and facts["command"] == ["op=double"] and facts["packages"]
    assert (facts["experiment"], facts["why"]) == ("doubles", "how doubling does")


def test_the_environment_names_the_config_dir_that_the_command_needs(run, tmp_path):
    own = tmp_path / "mine"
    files = tuple(map(str, (ROOT / "conf/config.yaml", ROOT / "conf/op/add.yaml", own / "experiment/x.yaml")))
    for given, said in ((files, str(own)), (files[:2], "")):
        run.environment(SimpleNamespace(**vars(SETTINGS) | {"config_files": given}), {})
        facts = json.loads((run.folder / "environment.json").read_text())
        assert facts["config_dir"] == said


def test_copies_that_setuptools_brings_along_are_no_packages(tmp_path, monkeypatch):
    hidden = tmp_path / "setuptools" / "_vendor" / "wheel-0.0.dist-info"
    hidden.mkdir(parents=True)
    (hidden / "METADATA").write_text("Name: hidden-copy\nVersion: 0.0\n")
    monkeypatch.syspath_prepend(str(hidden.parent))
    found = folder._packages.__wrapped__()
    assert "torch" in found and "hidden-copy" not in found
