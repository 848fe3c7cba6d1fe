"""What a run says while it works: rows at once, also above a terminal's bar, which fits in its width."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from runner.config.compose import compose
from runner.plan import plan
from runner.report import progress

WORDS = [
    "op=add",
    "device=cpu",
    "shape.rows=8",
    "shape.cols=8",
    "dtype=[float32,bfloat16]",
    "variant=[naive,cpp]",
]
COMPILER = "cpp.cpp does not compile:\ncpp.cpp:3: error: no [red]name[/red]\n   3 | f();"


@pytest.fixture
def started(monkeypatch):
    """start(terminal, width, label) -> (progress, plan, stream) whose console writes to the stream."""

    def start(terminal, width=80, label="", **more):
        stream = io.StringIO()

        def console(stderr, quiet):
            assert stderr
            return Console(file=stream, width=width, force_terminal=terminal, color_system=None, quiet=quiet)

        monkeypatch.setattr(progress, "Console", console)
        planned = plan(compose(WORDS))
        return progress.Progress(planned, label=label, **more), planned, stream

    return start


def row(variant="naive", status="ok", mean_ms=0.05, reason="", stage=""):
    return {
        "variant": variant,
        "params": {"block": 2.0},
        "status": status,
        "mean_ms": mean_ms,
        "reason": reason,
        "stage": stage,
    }


def step(index, what, stage="check"):
    return {"event": "step", "index": index, "stage": stage, "what": what}


def lines_of(stream):
    """What stays on the screen: without cursor movements and the lines that they erase."""
    parts = re.split(r"[\r\n]", stream.getvalue())
    return [re.sub(r".*\x1b\[2K|\x1b\[[?\d]*[A-Za-z]", "", part).rstrip() for part in parts]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_row_is_printed_when_it_is_known_with_all_its_lines(started, terminal):
    bar, planned, stream = started(terminal)
    with bar:
        first, second = planned.cases
        bar.row(first, row())
        bar.row(first, row("cpp", "error", "", COMPILER, "build"))
        seen = lines_of(stream)
        for line in [
            "[1/2] add cols=8 rows=8 float32",
            "  naive block=2 ok 50 us",
            "  cpp block=2 error at build: cpp.cpp does not compile:",
            "      cpp.cpp:3: error: no [red]name[/red]",
            "         3 | f();",
        ]:
            assert line in seen
        assert not any("bfloat16" in line for line in seen)
        bar.row(second, row(status="skipped", mean_ms="", reason="not here"))
        assert {"[2/2] add cols=8 rows=8 bfloat16", "  naive block=2 skipped: not here"} <= set(
            lines_of(stream)
        )


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_only_the_description_gives_way(started, width):
    bar, planned, stream = started(True, width, "job 2/4")
    with bar:
        bar.row(planned.cases[0], row())
        bar.step(planned.cases[0], step(1, "a step with a long name, " * 10))
        stream.truncate(0)
        bar._bar.refresh()
        (drawn,) = [line for line in lines_of(stream) if "━" in line]
    assert len(drawn) <= width
    assert re.match(r"[━╸╺ ]{16} 1/4 0:00:0\d [-\d]:[-\d]{2}:[-\d]{2} job 2/4 \[1/2\] cpp: a", drawn)
    assert drawn.endswith("…")


def test_a_new_stage_is_shown_at_once(started):
    """A long check must not stand under the name of the short build before it."""
    bar, planned, _ = started(True)
    with bar:
        bar.step(planned.cases[0], step(0, "build", "build"))
        bar.step(planned.cases[0], step(0, "check", "check"))
        assert bar._bar.tasks[0].description == "[1/2] naive: check"
        bar.step(planned.cases[0], step(1, "trial 1", "measure"))
        bar.step(planned.cases[0], step(0, "trial 2", "measure"))  # drawing each would disturb the next
        assert bar._bar.tasks[0].description == "[1/2] cpp: trial 1"


def test_a_long_line_is_not_cut(started):
    bar, planned, stream = started(True, 40)
    with bar:
        bar.row(planned.cases[0], row(status="wrong", mean_ms="", reason="x" * 200))
        assert "x" * 200 in stream.getvalue()


def test_a_label_stands_before_each_case(started):
    bar, planned, stream = started(False, label="job 2/4")
    with bar:
        bar.row(planned.cases[0], row())
    assert lines_of(stream)[0] == "job 2/4 [1/2] add cols=8 rows=8 float32"


@pytest.mark.parametrize("how", [{"terminal": False}, {"terminal": True, "bar": False}])
def test_piped_or_unwanted_there_is_no_bar(started, how):
    bar, planned, stream = started(**how)
    with bar:
        bar.step(planned.cases[0], step(0, "build"))
        bar.say("waiting for [cuda:0]")
    assert stream.getvalue() == "[1/2] add cols=8 rows=8 float32\nwaiting for [cuda:0]\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_says_nothing(started, terminal):
    bar, planned, stream = started(terminal, show=False)
    with bar:
        bar.step(planned.cases[0], step(0, "build"))
        bar.row(planned.cases[0], row())
        bar.say("something")
    assert stream.getvalue() == ""
