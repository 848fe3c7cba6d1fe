"""`check=sanitizer`, with a program in compute-sanitizer's place: findings are told, nothing is invented."""

import csv

import pytest

from runner import cli, driver
from runner.check import sanitizer

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float const*, float*, int)+0x90
=========     by thread (96,0,0) in block (0,0,0)
=========     Access to 0x7f2 is out of bounds
========= ERROR SUMMARY: 1 error
"""
FAKE = """#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1" in
        --tool) tool=$2; shift 2;;
        --error-exitcode) code=$2; shift 2;;
        --log-file) log=$2; shift 2;;
        *) break;;
    esac
done
"$@" || exit $?
if [ $tool = {guilty} ]; then
    cat > $log <<'END'
{found}END
    exit $code
fi
printf '========= COMPUTE-SANITIZER\\n========= ERROR SUMMARY: 0 errors\\n' > $log
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(guilty tool) -> the row of gelu's naive form."""

    def go(guilty, *words):
        program = tmp_path / "bin" / "compute-sanitizer"
        program.parent.mkdir(exist_ok=True)
        program.write_text(FAKE.format(guilty=guilty, found=MEMCHECK))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        fixed = ["op=gelu", "variant=naive", "device=cpu", "mode=check", "check=sanitizer"]
        cli.main([*fixed, "shape.rows=4", "shape.cols=8", f"output={tmp_path / 'out'}", *words])
        (path,) = (tmp_path / "out").rglob("results.csv")
        with open(path, newline="") as table:
            return next(csv.DictReader(table))

    yield go
    driver.shutdown()


def test_a_finding_is_the_rows_reason(run):
    row = run("racecheck")
    assert (row["status"], row["stage"]) == ("wrong", "check")
    words = "compute-sanitizer racecheck: Invalid __global__ write of size 4 bytes in scale(float const*"
    assert row["reason"].startswith(words)


def test_nothing_found_is_said(run):
    row = run("none", "direction=backward")
    assert row["status"] == "checked" and "compute-sanitizer found nothing" in row["note"]


def test_without_it_a_run_is_refused_in_a_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["op=gelu", "device=cpu", "check=sanitizer"]) == 2
    line = capsys.readouterr().err.strip()
    assert (
        line.startswith("runner: check=sanitizer: compute-sanitizer is not on the PATH") and "\n" not in line
    )
    assert cli.main(["op=gelu", "device=cpu", "check=sanitiser"]) == 2
    assert "check=sanitiser: no such check; did you mean 'sanitizer'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", ""),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", ""),
        (MEMCHECK, "Invalid __global__ write of size 4 bytes in scale(float const*, float*, int)"),
        (
            "========= Error: Race reported between Write access at k(int*)+0x10\n= SUMMARY: 1",
            "Error: Race reported between Write access at k(int*)+0x10",
        ),
    ],
)  # fmt: skip
def test_the_first_finding_of_a_log(log, words):
    assert sanitizer.first_finding(log) == words
