"""What the README says runs, and its table is the published one."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys

import pytest

from runner.compare import comparison, pairs
from runner.record.columns import COLUMNS
from runner.report import page, report
from runner.schema import OpNode, VariantNode
from tests.support import ROOT

TABLE = re.compile(r"(<!-- table: (\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
TRAPS = re.compile(r"(<!-- traps: (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
PICTURE = re.compile(r"(<!-- picture: (\S+) (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
COMPARE = re.compile(r"(<!-- compare: (\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
CSV = re.compile(r"(<!-- csv: (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
PUBLISHED = ROOT / "outputs" / "published"
README = (ROOT / "README.md").read_text()
METHODOLOGY = (ROOT / "METHODOLOGY.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)[3:]
    for block in re.findall(r"```bash\n(.*?)```", README, re.S)
    for line in block.splitlines()
]


def test_there_are_commands():
    assert len(COMMANDS) >= 10


@pytest.mark.slow
def test_every_command_runs(tmp_path):
    """All in one process, as a sweep's jobs are: torch is imported once."""
    code = "import sys, json; from runner.cli import main\n"
    code += "for words in json.loads(sys.argv[1]): print(words, main(words), flush=True)"
    words = [[*command, f"output={tmp_path}", "trials=2"] for command in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    codes = re.findall(r"^\[.*\] (\d+)$", done.stdout, re.M)
    assert codes == ["0"] * len(COMMANDS), done.stdout[-3000:] + done.stderr[-3000:]


def test_the_python_names_exist():
    import runner

    names = re.search(r"from runner import (.*)", README)[1].split(", ")
    assert all(callable(getattr(runner, name)) for name in names)


@pytest.mark.parametrize("kind", [OpNode, VariantNode])
def test_every_key_of_an_op_and_a_variant_is_described(kind):
    missing = [name for name in kind.__dataclass_fields__ if not re.search(rf"`{name}\b|\b{name}:", README)]
    assert not missing


def test_every_column_is_described():
    assert [name for name in COLUMNS if f"`{name}`" not in METHODOLOGY] == []


@pytest.mark.parametrize("page", ["README.md", "METHODOLOGY.md"])
def test_every_table_is_the_one_that_its_files_give(page):
    """After a new published run: make readme"""
    text = (ROOT / page).read_text()
    assert text == spliced(text)
    assert TABLE.search(text) or page != "README.md"


@pytest.mark.parametrize("path", sorted(PUBLISHED.rglob("report.md")), ids=str)
def test_every_published_report_is_the_one_that_its_tables_give(path):
    """After a new published run: make readme"""
    assert path.read_text() == report.markdown(path.parent)


@pytest.mark.parametrize("path", sorted(PUBLISHED.rglob("plots/*.png")), ids=str)
def test_every_published_plot_was_drawn_from_the_rows_beside_it(path):
    """After a new published run: make readme"""
    pytest.importorskip("PIL.Image")
    assert fits(path)


def test_a_page_may_hold_pictures_and_comparisons():
    run = "outputs/published/h200/headline"
    text = (
        f"<!-- picture: {run} sizes -->\nold\n<!-- end -->\n<!-- compare: {run} {run} -->\nold\n<!-- end -->"
    )
    found = spliced(text)
    assert f"![Time and percent of the limit, by size]({run}/plots/sizes.png)" in found
    assert "no regression beyond 1 %" in found and "old" not in found and spliced(found) == found


def fits(plot) -> bool:
    """Whether a published plot was drawn from the rows beside it."""
    from PIL import Image

    return Image.open(plot).text["Source"] == page.source_of(plot.parent.parent)


def spliced(text: str) -> str:
    """The page with each table made again from its published files, and the places of its pictures."""
    text = PICTURE.sub(lambda m: f"{m[1]}![{page.CAPTIONS[m[3]][0]}]({m[2]}/plots/{m[3]}.png)\n{m[5]}", text)
    text = COMPARE.sub(lambda m: f"{m[1]}{compared(m[2], m[3])}\n{m[5]}", text)
    text = TABLE.sub(lambda m: f"{m[1]}{report.tables(ROOT / m[2], m[3]).strip()}\n\n{m[5]}", text)
    text = TRAPS.sub(lambda m: f"{m[1]}{report.trap_table(ROOT / m[2])}{m[4]}", text)
    return CSV.sub(lambda m: f"{m[1]}{csv_table(ROOT / m[2])}{m[4]}", text)


def compared(a: str, b: str) -> str:
    return comparison.markdown(pairs.compare(str(ROOT / a), str(ROOT / b)), (a, b)).strip()


def csv_table(path) -> str:
    """Any small CSV as markdown."""
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    for path in sorted(PUBLISHED.rglob("report.md")):
        folder = path.parent
        plots = sorted(folder.glob("plots/*.png"))
        if path.read_text() != report.markdown(folder) or not all(map(fits, plots)):
            report.write(folder, pictures=(folder / "report.html").exists())
            if plots:
                page.write_plots(folder)
    for path in (ROOT / "README.md", ROOT / "METHODOLOGY.md"):
        path.write_text(spliced(path.read_text()))
