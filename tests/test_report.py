"""The tables that a user reads: on terminals of several widths, piped, and as markdown."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from rich.console import Console

from runner.command import listing
from runner.config.compose import compose
from runner.model import Refusal
from runner.plan import plan
from runner.record.columns import COLUMNS
from runner.report import cells, report

WIDTHS = (60, 80, 120, 200)
NOISE = "the spread is wide: the middle 60 % of the times span 11 % of the median"


def row(variant="naive", status="ok", mean_ms="0.05", **changes):
    """A row as `results.csv` has it: text in every column."""
    timed = {
        "mean_ms": mean_ms,
        "median_ms": mean_ms,
        "p20_ms": "0.0495",
        "p80_ms": "0.0505",
        "percent_of_limit": "15.1",
        "speedup": "1.25",
        "note": "6.6x from the memory limit",
    }
    made = dict.fromkeys(COLUMNS, "") | {
        "run_id": "r",
        "case_id": "c0ffee",
        "op": "softmax",
        "attrs": '{"dim":-1,"p":2.0}',
        "shape": '{"cols":4096,"rows":1024}',
        "layout": "contiguous",
        "dtype": "float32",
        "direction": "forward",
        "variant": variant,
        "params": "{}",
        "status": status,
        "accuracy": "elementwise",
        "seed": "123",
        "max_abs_err": "6e-08",
    }
    return made | (timed if status == "ok" else {}) | changes


@pytest.fixture
def folder(tmp_path):
    def write(*rows):
        with open(tmp_path / "results.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return tmp_path

    return write


def shown(folder, width=80, terminal=True):
    """Standard output at a width: its lines, without colours."""
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    report.print_tables(folder, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


MANY = [
    row("builtin_exact", note="launch-bound: 5.1 us on the device, 12 us on the host; " + NOISE),
    row("compile_mm", accuracy="normwise"),
    row("naive_mm", accuracy="normwise", note="at the memory limit: only moving fewer bytes helps"),
    row("cuda_thread", "skipped", reason="CUDA C++ needs a GPU, and this run is on the CPU"),
    row("broken", "error", stage="check", reason="ValueError: no such luck"),
]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal_and_no_row_is_broken(folder, width):
    lines = shown(folder(*MANY), width)
    table = lines[: lines.index("")]
    assert max(map(len, table)) <= width
    for made in MANY:
        (line,) = [line for line in table if line.startswith(made["variant"])]
        assert made["status"] in line
        assert ("50 us" in line) == (made["status"] == "ok")


def test_at_80_columns_a_verdict_stays_on_its_line(folder):
    text = "\n".join(shown(folder(*MANY), 80))
    assert "ok, 6.6x from memory limit\n" in text
    assert "ok, at memory limit\n" in text
    assert "ok, launch-bound\n" in text
    assert "error at check\n" in text
    assert "p20 - p80" not in text.partition("left out")[0]
    assert "left out of this narrow terminal, but not of report.md: p20 - p80" in text


def test_at_120_columns_nothing_is_left_out(folder):
    text = "\n".join(shown(folder(*MANY), 120))
    assert "49.5 - 50.5 us" in text and "left out" not in text


def test_remarks_hang(folder):
    lines = shown(folder(*MANY), 80)
    start = next(i for i, line in enumerate(lines) if line.startswith("  builtin_exact: launch-bound: "))
    assert lines[start + 1].startswith("      ") and lines[start + 1].strip()
    joined = " ".join(line.strip() for line in lines[start : start + 2])
    assert joined == f"builtin_exact: launch-bound: 5.1 us on the device, 12 us on the host; {NOISE}"
    assert "  compile_mm, naive_mm: judged by norm" in lines
    assert "  cuda_thread: CUDA C++ needs a GPU, and this run is on the CPU" in lines


def test_piped_nothing_wraps(folder, capsys):
    report.print_tables(folder(*MANY, row("long", note=f"{NOISE}; {'word ' * 60}")))
    out = capsys.readouterr().out
    assert "\x1b" not in out and "word " * 59 in out and "49.5 - 50.5 us" in out


def test_the_last_line_names_the_folder_and_the_seed(folder):
    assert shown(folder(row()))[-1].endswith("   seed 123")
    assert shown(folder(row(), row("other", seed="5")))[-1].endswith("   each job's seed is in results.csv")
    assert shown(folder())[-1] == f"results: {folder()}"


def test_columns_that_are_empty_in_the_whole_table_are_left_out(folder):
    (heading, names, *rest) = shown(folder(row(status="checked"), row("other", "wrong", stage="check")))
    assert heading == "softmax dim=-1 p=2 cols=4096 rows=1024 float32"
    assert names.split("  ") == ["variant", "max error", "verdict"]
    assert rest[0].split() == ["naive", "6.0e-08", "checked"]
    assert "| variant | max error | verdict |\n|---|---:|---|\n" in report.tables(
        folder(row(status="checked"))
    )


@pytest.mark.parametrize(
    "median, said", [("0.05", False), ("0.0405", False), ("0.0395", True), ("0.0605", True)]
)
def test_a_median_far_from_the_mean_is_not_to_be_compared(folder, median, said):
    lines = shown(folder(row(median_ms=median, note="at the memory limit: only moving fewer bytes helps")))
    assert any(line.endswith("disturbed: do not compare") for line in lines) is said
    assert any("moving fewer bytes" in line for line in lines) is not said


def test_parameters_are_shown_where_they_tell_rows_apart():
    sets = [{"block": 64, "warps": 4}, {"block": 128, "warps": 4}]
    rows = [row("tile", params=json.dumps(one)) for one in sets] + [row("other", params='{"warps":8}')]
    assert cells.names_of(rows) == ["tile block=64", "tile block=128", "other"]


def test_a_sentence_that_rows_share_is_said_once():
    rows = [row("a", note=f"2.0x from the memory limit; busy; {NOISE}"), row("b", note="at it; busy")]
    assert cells.remarks(rows, folder=None) == ["a, b: busy", f"a: {NOISE}"]


def test_sentences_that_differ_in_one_figure_are_said_once():
    far = "2.0x from the memory limit"
    notes = ["median -4 % from the mean", "median +13 % from the mean", "2 of 37 late; worst 1.5 %"]
    rows = [row(name, note=f"{far}; {note}") for name, note in zip("abc", notes)]
    rows.append(row("d", note=f"{far}; 3 of 37 late; worst 1.5e+02 %"))
    assert cells.remarks(rows, folder=None) == [
        "a, b: median -4, +13 % from the mean",
        "c, d: 2, 3 of 37 late",
        "c, d: worst 1.5, 1.5e+02 %",
    ]
    rows = [row(name, note=f"{far}; {number} of {number + 1} late") for name, number in (("a", 1), ("b", 2))]
    assert cells.remarks(rows, folder=None) == ["a: 1 of 2 late", "b: 2 of 3 late"]


def test_judged_by_norm_is_said_once():
    told = "judged by norm: its worst element is off by 1e-3 of itself and the mean size"
    made = row("mm", accuracy="normwise", note=f"2.0x from the memory limit; {told}")
    assert cells.remarks([made], folder=None) == [f"mm: {told}"]


@pytest.mark.parametrize("p80, said", [("0.0985", False), ("0.11", True)])
def test_times_without_a_middle_are_not_to_be_compared(folder, p80, said):
    rows = [row(median_ms="0.05", p80_ms=p80, speedup="2.5", baseline="other"), row("other", speedup="1")]
    lines = shown(folder(*rows))
    assert any(line.endswith("disturbed: do not compare") for line in lines) is said
    assert any("2.50x" in line for line in lines) is not said
    baseline = row("other", speedup="1", baseline="other", median_ms="0.2")
    assert "speedup" not in cells.table([rows[0], baseline])[0]


@pytest.mark.parametrize("end", ["\n", " "])  # results.csv has no line ends
def test_of_a_compilers_output_the_first_error_and_the_log(tmp_path, end):
    said = ["x.cpp does not compile:", "x.cpp:3:10: error: no such name", "    3 |  return y;", "      |  ^"]
    made = row("c", "error", stage="build", reason=end.join(said), run_id="sweep/1_op=a", params='{"w":4}')
    assert cells.remarks([made], tmp_path)[0].startswith("c: " + end.join(said[:3])[:60])
    log = tmp_path / "1_op=a" / "builds" / "c0ffee" / "c_w=4" / "build.log"
    log.parent.mkdir(parents=True)
    log.write_text("all of it")
    assert cells.remarks([made], tmp_path) == [
        f"c: {said[0]} {said[1]}; see {log.relative_to(tmp_path).as_posix()}"
    ]


@pytest.mark.parametrize(
    "shape, said",
    [
        ({"rows": 4, "cols": 8, "a_rows": 4, "b_rows": 1, "a_cols": 8}, "b_rows=1 cols=8 rows=4"),
        ({"n": 4, "m": 4}, "m=4 n=4"),
        ({"in_n": 4, "n": 5}, "in_n=4 n=5"),
    ],
)
def test_a_dim_named_after_another_is_shown_where_it_differs(shape, said):
    assert cells.title("add", {}, shape, "float32", "forward", "contiguous") == f"add {said} float32"


def test_the_tables_title_is_that_of_the_plan():
    words = ["op=cdist", "attrs.p=[2.0,inf]", "shape.n=3", "shape.d=2", "device=cpu", "direction=backward"]
    for one in plan(compose(words)).cases:
        case = one.case
        texts = {"attrs": json.dumps(case.attrs), "shape": json.dumps(case.shape, sort_keys=True)}
        made = row(op=case.op, dtype=case.dtype, direction=case.direction, layout=case.layout, **texts)
        assert cells.title_of(made) == report.title(case)
        assert report.title(case).startswith(f"cdist p={cells.plain(case.attrs['p'])} batch=1 d=2 m=3 n=3")


def test_the_plan_in_words(capsys):
    words = ["op=cdist", "device=cpu", "shape.n=1024", "shape.d=16", "variant=[naive,cpp,cuda_thread]"]
    console = Console(file=io.StringIO(), width=40)
    report.print_plan(plan(compose(words)), console=console)
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("cdist p=2 batch=1 d=16 m=1024 n=1024 float32  case ")
    assert lines[0].endswith(", up to 235 MB with its check")
    assert lines[1:] == [
        "  naive: 218 MB",
        "  cuda_thread: skipped, CUDA C++ needs a GPU, and this run is on the CPU",
        "  cpp: 4.33 MB",
        "1 case, 3 rows",
    ]


def test_a_plan_in_which_nothing_runs_claims_no_memory():
    console = Console(file=io.StringIO())
    report.print_plan(plan(compose(["op=gelu", "device=cpu", "variant=cuda_thread"])), console=console)
    assert "up to" not in console.file.getvalue()


@pytest.mark.parametrize(
    "count, said",
    [(0, "0 B"), (999, "999 B"), (999.6, "1 KB"), (4.33e6, "4.33 MB"), (999.7e6, "1 GB"), (2.1e14, "210 TB")],
)
def test_sizes(count, said):
    assert cells.size(count) == said


def test_a_plan_marks_what_there_is_no_memory_for(capsys):
    planned = plan(compose(["op=gelu", "device=cpu", "variant=[naive,cpp]", "shape.rows=1024"]))
    report.print_plan(planned, free=1e6)
    assert capsys.readouterr().out.count(" MB, and 1 MB are free here") == 2
    report.print_plan(planned)
    assert "free" not in capsys.readouterr().out


def test_markdown_shows_text_as_it_stands(folder):
    made = row("a", "skipped", reason="accepts only a*b*c < 2**31 | x;\nhere a=1")
    text = report.markdown(folder(made))
    assert "- a: accepts only a\\*b\\*c \\< 2\\*\\*31 \\| x; here a=1" in text
    assert "\n\nSeed 123.\n\n**softmax " in text


def test_markdown_says_where_it_is_from_and_what_its_columns_mean(folder):
    here = folder(row())
    facts = {"device_name": "NVIDIA H200", "torch": "2.11.0", "host": "h", "driver": "580"}
    (here / "environment.json").write_text(json.dumps(facts))
    text = report.markdown(here)
    assert "\n\nNVIDIA H200, torch 2.11.0, h\n\nSeed 123.\n\n" in text
    assert f"\n\n{report.COLUMNS}\n\n**softmax " in text
    (here / "environment.json").unlink()
    assert report.markdown(here).startswith(f"# {here.name}\n\nSeed 123.\n\n")


def test_ceilings_of_a_busy_machine_say_so(capsys):
    calm = {
        "device": "cpu",
        "driver": "",
        "torch": "2",
        "bandwidth": {"copy": [(1e3, 1.0), (1e6, 10.0)]},
        "tflops": {},
    }
    calm["bandwidth"] |= dict.fromkeys(("read", "triad", "write"), calm["bandwidth"]["copy"])
    report.print_ceilings(calm)
    assert "busy" not in capsys.readouterr().out
    report.print_ceilings(calm | {"bandwidth": calm["bandwidth"] | {"copy": [(1e6, 0.01), (1e7, 10.0)]}})
    assert "the machine was busy" in capsys.readouterr().out


def test_traps_have_a_table_of_their_own(folder):
    here = folder(row())
    (here / "traps.csv").write_text(
        "row_id,variant,way,reads_us,over_right,lesson\n"
        "r,naive,right,50,1,in turns\nr,naive,warm [cache],25,0.5,the input was | still there\n"
    )
    lines = shown(here, 120)
    assert any(re.split("  +", line)[:4] == ["naive", "warm [cache]", "25 us", "0.50x"] for line in lines)
    assert "| naive | warm [cache] | 25 us | 0.50x | the input was \\| still there |\n" in report.markdown(
        here
    )
    (here / "traps.csv").unlink()
    assert "in other ways" not in report.markdown(here) and "in other ways" not in shown(here)


def test_rich_markup_in_a_reason_is_text(folder):
    made = row("a[red]", "error", stage="check", reason="ValueError: [/bold] at x[1]")
    lines = shown(folder(made))
    assert any(line.startswith("a[red] ") for line in lines)
    assert "  a[red]: ValueError: [/bold] at x[1]" in lines


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(Refusal, match=r"holds no results\.csv"):
        report.read(tmp_path)


def test_the_list_shows_values_as_the_tables_do():
    assert "p=2|0|1|1.5|3|inf" in listing.of_op(compose(["op=cdist", "device=cpu"]).op)
