"""The page of a run and its pictures, made from the files alone."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from rich.console import Console

from runner.record import kept
from runner.report import cells, marks, page, report
from runner.report.__main__ import main
from runner.report.surface import sections
from tests.kept_runs import row, write

pytest.importorskip("matplotlib")
from runner.report import canvas, pictures

SIZES = (1024, 4096, 16384)


def sweep(folder, **changes):
    """Two dtypes, three sizes, three variants and one that is skipped."""
    rows = []
    for dtype in ("float32", "bfloat16"):
        for n in SIZES:
            limit = n * n / 1e5 * (2 if dtype == "float32" else 1)
            for variant, times in (("naive", 9), ("builtin", 1.1), ("tuned", 1.02)):
                shape = {"rows": n, "cols": n}
                rows.append(row(variant, times * limit, shape=shape, dtype=dtype, **derived(limit, times)))
            skipped = {"status": "skipped", "stage": "", "reason": "<b>needs</b> a CPU & more"}
            rows.append(row("cpp", 0, shape=shape, dtype=dtype, **skipped))
    return write(folder, rows, **changes)


def derived(limit_us, times):
    return {
        "limit_ms": limit_us / 1e3,
        "percent_of_limit": 100 / times,
        "speedup": 9 / times,
        "baseline": "naive",
        "bound": "memory",
        "intensity": 0.875,
        "tflops": 3.5 / times,
        "flops": 1e9,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = sweep(tmp_path_factory.mktemp("page") / "run", device_name="NVIDIA H200")
    assert main([str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def text(folder):
    return (folder / "report.html").read_text()


def test_one_file_that_asks_for_nothing_else(text):
    outside = re.findall(r'(?:src|href)="(?!#|\w+-)[^"]*"|url\((?!#)[^)]*\)|@import|https?://[^"<\s]*', text)
    assert set(outside) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert len(text) < 500_000


def test_every_picture_is_there_and_every_timed_row_is_in_each(folder, text):
    rows = report.read(folder)
    for name in page.CAPTIONS:
        figure = re.search(rf'<figure id="{name}">.*?</figure>', text, re.S)[0]
        drawn = set(re.findall(r'class="mark" data-row="(\w+)"', figure))
        assert drawn == {one["row_id"] for one in rows if one["mean_ms"]}, name
        ElementTree.fromstring(re.search(r"<svg.*</svg>", figure, re.S)[0])
    assert {path.stem for path in (folder / "plots").iterdir()} == set(page.CAPTIONS)


def test_no_id_stands_twice_and_every_reference_is_met(text):
    ids = Counter(re.findall(r'\bid="([^"]+)"', text))
    assert [name for name, count in ids.items() if count > 1] == []
    assert set(re.findall(r'(?:href="#|url\(#)([\w-]+)', text)) <= set(ids)


def test_colours_follow_the_reader(text):
    assert "#00fe" not in text and "var(--ink)" in text
    figure = re.search(r"<figure.*</figure>", text, re.S)[0]
    fixed = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]+)", figure))
    assert fixed == set(), "a colour that is the same in light and dark"


def test_what_a_run_says_is_text_and_not_markup(text):
    assert "&lt;b&gt;needs&lt;/b&gt; a CPU &amp; more" in text and "<b>needs" not in text


def test_it_is_made_again_from_the_files_alone_and_the_same(folder, text):
    (folder / "report.html").unlink()
    page.write(folder)
    assert (folder / "report.html").read_text() == text


def test_rows_without_times_are_a_page_without_pictures(tmp_path):
    folder = write(tmp_path / "run", [row(mean_us=0)])
    page.write(folder)
    text = (folder / "report.html").read_text()
    assert "<figure" not in text and "no such header" in text


def test_disturbed_times_are_called_so_and_have_no_speedup(tmp_path):
    rows = [row("naive", 900), row("builtin", 100), row("tuned", 90)]
    for one, times in zip(rows, (9, 1.1, 1.02)):
        one |= derived(1000, times) | {"baseline": "naive"}
    folder = write(tmp_path / "run", rows)
    table = folder / "results.csv"
    lines = table.read_text().splitlines()
    place = lines[0].split(",").index("median_ms")
    tuned = next(i for i, line in enumerate(lines) if ",tuned," in line)
    page.write(folder)
    assert (folder / "report.html").read_text().count(">8.82</td>") == 1
    cells = next(csv.reader([lines[tuned]]))
    cells[place] = "0.2"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([*csv.reader(lines[:tuned]), cells, *csv.reader(lines[tuned + 1 :])])
    page.write(folder)
    text = (folder / "report.html").read_text()
    assert ">8.82</td>" not in text and text.count(">disturbed</td>") == 1
    bars = re.search(r'<figure id="speedup">.*?</figure>', text, re.S)[0]
    assert len(re.findall('data-row="', bars)) == 2


def test_columns_that_nobody_fills_are_left_out(tmp_path, text):
    assert ">SM MHz<" in text
    page.write(write(tmp_path / "run", [row(sm_mhz="")]))
    assert ">SM MHz<" not in (tmp_path / "run" / "report.html").read_text()


def test_the_devices_roofs_are_told_of_where_they_are_drawn(folder, text):
    assert page.ROOFS.partition(";")[0] not in text
    assert page.ROOFS.partition(";")[0] in page.page(
        "t", kept.read(folder / "results.csv"), {"roofline": "<svg>"}, True
    )


@pytest.mark.parametrize(
    "value, said",
    [
        ("4288.1", "4288"),
        ("43.25", "43.2"),
        ("0.5168", "0.517"),
        ("0.000492", "0.00049"),
        ("0", "0"),
        ("", ""),
    ],
)
def test_a_rate_has_three_digits(value, said):
    assert cells.rate(value) == said


def test_no_rows_at_all(tmp_path):
    page.write(write(tmp_path / "run", []))
    assert "no rows" in (tmp_path / "run" / "report.html").read_text()


def test_bad_input_is_a_sentence(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no results.csv" in capsys.readouterr().err


def test_without_matplotlib_the_tables_are_written_and_the_remedy_is_said(tmp_path, monkeypatch, capsys):
    folder = write(tmp_path / "run", [row()])
    monkeypatch.setattr(page, "available", lambda: False)
    assert main([str(folder)]) == 0
    assert "pip install 'kernel-runner[plots]'" in capsys.readouterr().err
    assert (folder / "report.md").is_file() and not (folder / "report.html").exists()


# ---- where rows stand ----


def rows_of(shapes, **changes):
    found = []
    for i, shape in enumerate(shapes):
        one = dict.fromkeys(("attrs", "params", "limit_ms", "median_ms", "p20_ms", "p80_ms"), "")
        one |= {"status": "ok", "mean_ms": "1"}
        one |= {
            "op": "o",
            "dtype": "float32",
            "direction": "forward",
            "layout": "contiguous",
            "timing": "cold",
        }
        one |= {"variant": "v", "row_id": str(i), "case_id": str(i), "shape": str(shape).replace("'", '"')}
        found.append(one | changes)
    return found


@pytest.mark.parametrize(
    "shapes, expected",
    [
        ([{"rows": 8, "cols": 8}, {"rows": 16, "cols": 16}], [("o float32", "rows = cols")]),
        ([{"rows": 8, "cols": 4}, {"rows": 4, "cols": 8}], [("o float32", "cols, where cols x rows = 32")]),
        ([{"n": 8, "d": 3}, {"n": 8, "d": 64}], [("o float32", "d")]),
        (
            [{"n": n, "d": d} for n in (8, 9) for d in (3, 16, 64)],
            [("o float32 n=8", "d"), ("o float32 n=9", "d")],
        ),
        ([{"n": 8}], []),
    ],
)
def test_the_size_that_curves_are_drawn_along(shapes, expected):
    assert [(panel.title, panel.x_label) for panel in marks.panels(rows_of(shapes))] == expected


def test_points_are_in_the_order_of_their_sizes():
    (panel,) = marks.panels(rows_of([{"n": 16}, {"n": 4}, {"n": 8}]))
    assert [x for x, _ in panel.lines["v"]] == [4, 8, 16]


def test_thinning_keeps_the_extremes():
    samples = [1.0] * 5000
    samples[1234], samples[4000] = 9.0, 0.1
    kept = dict(marks.thinned(samples))
    assert len(kept) <= 160 and kept[1234] == 9.0 and kept[4000] == 0.1
    assert marks.thinned([3.0, 1.0]) == [(0, 3.0), (1, 1.0)]


def test_names_and_looks_tell_parameter_sets_apart():
    rows = [one | {"baseline": "b"} for w in (4, 8) for one in rows_of([{"n": 8}], params=f'{{"w":{w}}}')]
    for i, one in enumerate(rows):
        one["row_id"] = str(i)
    assert list(marks.names(rows).values()) == ["v w=4", "v w=8"]
    looks = marks.styles(rows, marks.LIGHT)
    assert looks["v w=4"].colour != looks["v w=8"].colour


# ---- what is drawn can be read ----

LONG = "cuda_strided_online"


@pytest.mark.parametrize("fastest, slowest", [(60, 62), (60, 320), (0.9, 1.05), (5, 9e3), (99, 1001)])
def test_times_over_any_span_have_named_ticks(fastest, slowest):
    rows = rows_of([{"n": 8}, {"n": 16}, {"n": 32}], percent_of_limit="50", baseline="b")
    for one, mean in zip(rows, (fastest, (fastest * slowest) ** 0.5, slowest)):
        one["mean_ms"] = str(mean / 1e3)
    figure = pictures.sizes(canvas.Sheet(rows, {}, None, marks.LIGHT))
    figure.canvas.draw()
    axis = figure.axes[0].yaxis
    low, high = sorted(figure.axes[0].get_ylim())
    named = [axis.major.formatter(place) for place in axis.get_ticklocs() if low <= place <= high]
    assert 2 <= len(named) <= 8 and len(set(named)) == len(named) and all(named)


@pytest.mark.parametrize("variants", [("builtin", other) for other in ("tuned", LONG, f"{LONG} warps=16")])
@pytest.mark.parametrize("draw", [pictures.speedup, pictures.strips])
def test_titles_end_in_their_panels_column(draw, variants):
    shape = json.dumps({"batch": 1, "cols": 16384, "m": 16384, "rows": 16384})
    given = {"shape": shape, "direction": "backward", "speedup": "2", "baseline": "builtin"}
    rows = [
        one | {"row_id": f"{case}{variant}", "case_id": str(case), "variant": variant} | given
        for case in range(7)
        for variant in variants
        for one in rows_of([{}])
    ]
    samples = {row["row_id"]: [1.0, 1.1, 1.0] for row in rows}
    figure = draw(canvas.Sheet(rows, samples, None, marks.LIGHT))
    figure.canvas.draw()
    shown = [one for one in figure.axes if one.axison]
    assert len(shown) == 7
    for one in shown:
        end = one.title.get_window_extent().x1, one._left_title.get_window_extent().x1
        assert max(end) <= one.get_window_extent().x1 + 1


@pytest.mark.parametrize("rate, unit", [(3.5, "TFLOP/s"), (0.36, "TFLOP/s"), (4e-5, "GFLOP/s")])
def test_a_roofs_rates_are_in_the_unit_that_reads_best(rate, unit):
    rows = rows_of([{"n": 8}, {"n": 16}], tflops=str(rate), intensity="1", limit_ms="0.9", baseline="b")
    one = pictures.roof(canvas.Sheet(rows, {}, None, marks.LIGHT)).axes[0]
    assert one.get_ylabel() == unit
    assert float(one.yaxis.major.formatter(rate)) == pytest.approx(rate * (1e3 if unit[0] == "G" else 1))


def test_panels_are_as_high_as_their_rows_need():
    rows = rows_of([{"n": 8}] * 12, speedup="2", baseline="b", case_id="0")
    rows += rows_of([{"n": 8}] * 2, speedup="2", baseline="b", case_id="1", op=LONG)
    for i, one in enumerate(rows):
        one |= {"row_id": str(i), "variant": f"a_long_name_of_a_variant {i}"}
    rows[-2]["case_id"] = rows[-1]["case_id"] = "1"
    found = [("first", rows[:12]), ("beside", rows[:12]), ("below", rows[12:])]
    sheet = canvas.Sheet(rows, {}, None, marks.LIGHT)
    panels = list(canvas.named(sheet, found, 0.5, 0.25))
    panels[0][0].figure.canvas.draw()
    first, _, below = (one.get_window_extent().height / len(own) for one, _, own in panels)
    assert below < 2 * first  # one height for all would be a factor of 6


def test_a_plot_has_few_colours_and_says_its_source(folder):
    image = pytest.importorskip("PIL.Image").open(folder / "plots" / "samples.png")
    assert image.mode == "P" and image.text["Source"] == page.source_of(folder)
    assert image.size[0] == 1440
    found = {"#{:02x}{:02x}{:02x}".format(*rgb) for _, rgb in image.convert("RGB").getcolors(256)}
    looks = marks.styles(report.read(folder), marks.LIGHT)
    assert {look.colour for look in looks.values()} | {marks.LIGHT.ground, marks.LIGHT.ink} <= found


# ---- parameters ----


def test_a_parameter_sweep_has_its_best_setting_and_its_surface():
    rows = []
    for block, warps, mean in ((64, 4, 2), (64, 16, 3), (128, 4, 1), (128, 16, None)):
        rows += rows_of([{"n": 8}], params=f'{{"block":{block},"w":{warps}}}', mean_ms=str(mean or ""))
        rows[-1] |= {"case_id": "c", "status": "ok" if mean else "skipped"}
    rows += rows_of([{"n": 8}], params='{"block":128,"w":8}', mean_ms="0.5", median_ms="0.9", case_id="c")
    lines = sections(rows)
    assert "| o n=8 float32 | block=128 w=4 | 1 ms | 3 ms | 3.00x | 3 of 5 |" in lines
    assert "| case | block | w=4 | w=8 | w=16 |" in lines
    assert "| o n=8 float32 | 64 | 2 ms |  | 3 ms |" in lines
    assert "| o n=8 float32 | 128 | 1 ms | disturbed | skipped |" in lines


def test_the_page_and_the_terminal_have_the_best_setting(tmp_path):
    rows = [row("triton_row", mean, params={"num_warps": warps}) for warps, mean in ((4, 90.0), (8, 40.0))]
    folder = write(tmp_path / "run", rows)
    page.write(folder)
    text = (folder / "report.html").read_text()
    section = re.search(r'<section id="parameters">.*?</section>', text, re.S)[0]
    assert "<td>num_warps=8</td>" in section and 'href="#parameters"' in text
    console = Console(file=io.StringIO(), width=120)
    report.print_tables(folder, console)
    assert re.search(r"the best setting\n.*\n.*num_warps=8 ", console.file.getvalue())


def test_why_a_run_was_made_heads_its_pages(tmp_path):
    folder = write(tmp_path / "run", [row()], why="what <it> is for")
    page.write(folder)
    report.write(folder)
    assert "what &lt;it&gt; is for</p>" in (folder / "report.html").read_text()
    assert "is for\n" in (folder / "report.md").read_text()


def test_no_parameters_no_section():
    assert sections(rows_of([{"n": 8}, {"n": 9}])) == []
