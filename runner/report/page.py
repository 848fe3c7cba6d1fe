"""`report.html`, the pictures and the table of a run on one page that needs nothing else; `plots/*.png`."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from runner.files import write_whole
from runner.record import kept
from runner.record.folder import CEILINGS
from runner.report import cells, marks, surface
from runner.report.cells import Row
from runner.report.marks import DARK, LIGHT, Theme

_STATIC = Path(__file__).with_name("static")
CAPTIONS = {
    "roofline": (
        "Roofline",
        "Each row hangs below its own limit (the dash): the longer the line, the more there is to gain. "
        "Variants of one intensity stand side by side.",
    ),
    "sizes": (
        "Time and percent of the limit, by size",
        "Above, the mean time of a call; the dotted line is the least that any form needs. Below, how much "
        "of that limit each variant reaches.",
    ),
    "speedup": ("Speedup over the baseline", "Longer is faster; the dotted line is the baseline itself."),
    "samples": (
        "Every trial",
        "A level strip is a calm row. A slope is drift, steps are clocks, triangles at the edge are outliers "
        "beyond the strip.",
    ),
}
ROOFS = "Full lines are the most that this device does at large sizes; a small case's own limit lies lower."
FACTS = {
    "device_name": "device",
    **cells.MACHINE,
    "system": "system",
    "time_utc": "begun (UTC)",
    "seed": "seed",
}
# Heading, how a row's cell reads, how it sorts (None: by its words).
TABLE: tuple[tuple[str, Any, str | None], ...] = (
    ("case", cells.title_of, None),
    ("variant", cells.full_name, None),
    ("status", lambda row: "disturbed" if cells.disturbed(row) else row["status"], None),
    ("mean", lambda row: cells.milliseconds(row["mean_ms"]), "mean_ms"),
    ("p20 - p80", lambda row: cells.span(row["p20_ms"], row["p80_ms"]), "p20_ms"),
    ("% of limit", lambda row: _number(row["percent_of_limit"], ".1f"), "percent_of_limit"),
    ("bound", lambda row: row["bound"], None),
    ("speedup", lambda row: _number(row["speedup"], ".2f"), "speedup"),
    ("GB/s", lambda row: cells.rate(row["gbps"]), "gbps"),
    ("TFLOP/s", lambda row: cells.rate(row["tflops"]), "tflops"),
    ("max error", lambda row: _number(row["max_abs_err"], ".1e"), "max_abs_err"),
    ("trials", lambda row: row["trials"], "trials"),
    ("SM MHz", lambda row: row["sm_mhz"], "sm_mhz"),
    ("remarks", lambda row: row["reason"] or row["note"], None),
)
_ALWAYS = ("case", "variant", "status", "mean", "% of limit", "bound", "speedup", "remarks")  # for the script
MISSING = "pictures need matplotlib: pip install 'kernel-runner[plots]'"


def available() -> bool:
    """Whether pictures can be drawn here."""
    return find_spec("matplotlib") is not None


def write(folder: Path) -> None:
    """`report.html` beside the tables it is made from. Needs matplotlib."""
    from runner.report import saved

    table = kept.read(folder / "results.csv")
    svgs = {name: saved.inline(figure, name) for name, figure in _drawn(table, saved.variables(LIGHT))}
    roofs = folder.joinpath(CEILINGS).is_file()
    write_whole(folder / "report.html", page(folder.name, table, svgs, roofs))


def write_plots(folder: Path) -> None:
    """The same pictures as `plots/<name>.png`, for slides and pull requests. Needs matplotlib."""
    from runner.report import saved

    plots, source = folder / "plots", source_of(folder)
    for name, figure in _drawn(kept.read(folder / "results.csv"), LIGHT):
        plots.mkdir(exist_ok=True)
        saved.png(figure, plots / f"{name}.png", source)


def source_of(folder: Path) -> str:
    """What a plot says that it was drawn from, under `Source` in its PNG: a hash of the rows."""
    return "results.csv " + hashlib.sha256((folder / "results.csv").read_bytes()).hexdigest()


def _drawn(table: kept.Table, theme: Theme) -> Iterator[tuple[str, Any]]:
    if not marks.timed(table.rows):
        return  # nothing to draw, and matplotlib takes a second to import
    import matplotlib

    from runner.report import pictures

    ceilings = table.path.with_name(CEILINGS)
    known = json.loads(ceilings.read_text(encoding="utf-8")) if ceilings.is_file() else None
    settings = {"svg.fonttype": "none", "svg.hashsalt": "runner", "font.family": "DejaVu Sans"}
    with matplotlib.rc_context(settings):
        yield from pictures.all_of(pictures.Sheet(table.rows, table.samples(), known, theme))


def _styles() -> str:
    def block(theme: Theme) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in theme.named().items())

    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {block(DARK)} }} }}"
    return f":root {{ {block(LIGHT)} }}\n{dark}\n" + (_STATIC / "page.css").read_text(encoding="utf-8")


# ---- the page ----


def page(title: str, table: kept.Table, svgs: Mapping[str, str], roofs: bool = False) -> str:
    """The whole page. `svgs` are its pictures; `roofs`: whether the device's own are drawn in them."""
    rows = table.rows
    captions = {name: words for name, (_, words) in CAPTIONS.items()}
    captions["roofline"] += f" {ROOFS}" if roofs else ""
    order = {name: i for i, name in enumerate(dict.fromkeys(row["case_id"] for row in rows))}
    rows = [row for _, group in cells.cases(rows) for row in cells.comparable(group)]
    ordered = sorted(rows, key=lambda row: (order[row["case_id"]], float(row["mean_ms"] or "inf")))
    parameters = _parameters(rows)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{_text(title)}</title><style>{_styles()}</style></head><body>",
        f"<header><h1>{_text(_headline(rows))}</h1><p>{_text(_summary(rows, table))}</p>",
        f"<nav>{_links(svgs, bool(parameters))}</nav></header><main>",
        *(_figure(name, svg, captions[name]) for name, svg in svgs.items() if name != "samples"),
        _table(ordered),
        parameters,
        *(_figure(name, svg, captions[name]) for name, svg in svgs.items() if name == "samples"),
        _environment(title, table),
        '</main><div id="tip" role="status" hidden></div>',
        f"<script>{(_STATIC / 'page.js').read_text(encoding='utf-8')}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _text(words: Any) -> str:
    return html.escape(str(words))


def _headline(rows: Sequence[Row]) -> str:
    ops = ", ".join(dict.fromkeys(row["op"] for row in rows))
    return f"{ops} on {', '.join(dict.fromkeys(row['device'] for row in rows))}" if rows else "no rows"


def _summary(rows: Sequence[Row], table: kept.Table) -> str:
    cases = len({row["case_id"] for row in rows})
    statuses = [row["status"] for row in rows]
    counts = [f"{statuses.count(name)} {name}" for name in dict.fromkeys(statuses)]
    why = str(table.facts.get("why") or "")
    words = f"{cells.counted(cases, 'case')}, {cells.counted(len(rows), 'row')}: {', '.join(counts)}."
    return " ".join(filter(None, [words, why]))


def _links(names: Iterable[str], parameters: bool) -> str:
    headings = {name: CAPTIONS[name][0] for name in names}
    samples = {name: headings.pop(name) for name in ("samples",) if name in headings}
    swept = {"parameters": "Parameters"} if parameters else {}
    places = {**headings, "rows": "Rows", **swept, **samples, "environment": "Environment"}
    return " ".join(f'<a href="#{name}">{_text(heading)}</a>' for name, heading in places.items())


def _figure(name: str, svg: str, words: str) -> str:
    heading = CAPTIONS[name][0]
    label = f'<svg role="img" aria-label="{_text(heading)}"'
    return (
        f'<figure id="{name}"><h2>{_text(heading)}</h2><figcaption>{_text(words)}</figcaption>'
        f'<div class="wide">{svg.replace("<svg", label, 1)}</div></figure>'
    )


def _table(rows: Sequence[Row]) -> str:
    shown = [one for one in TABLE if one[0] in _ALWAYS or any(one[1](row) for row in rows)]
    heads = "".join(_head(name, key) for name, _, key in shown)
    body = "\n".join(_line(row, shown) for row in rows)
    return (
        '<section id="rows"><h2>Rows</h2><p class="tools">'
        '<label>filter <input type="search" id="filter" placeholder="softmax bfloat16 -naive"></label>'
        '<output id="count"></output></p>'
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div></section>"
    )


def _head(name: str, key: str | None) -> str:
    kind = "" if key is None else ' class="number"'
    return f'<th scope="col"{kind}><button type="button">{_text(name)}</button></th>'


def _line(row: Row, shown: Sequence[tuple[str, Any, str | None]]) -> str:
    found = "".join(_cell(row, words, key) for _, words, key in shown)
    kind = ' class="disturbed"' if cells.disturbed(row) else ""
    return f'<tr id="{_text(row["row_id"])}"{kind} data-status="{_text(row["status"])}">{found}</tr>'


def _cell(row: Row, words: Any, key: str | None) -> str:
    value = "" if key is None else f' class="number" data-value="{_text(row[key])}"'
    return f"<td{value}>{_text(words(row))}</td>"


def _number(text: str, form: str) -> str:
    return format(float(text), form) if text else ""


def _parameters(rows: Sequence[Row]) -> str:
    """The best setting of each variant whose parameters were swept, and the whole surface; or nothing."""
    found = [_plain(one) for pair in surface.of(rows) for one in pair]
    return f'<section id="parameters"><h2>Parameters</h2>{"".join(found)}</section>' if found else ""


def _plain(one: surface.Table) -> str:
    kinds = ["" if name in one.words else ' class="number"' for name in one.headings]
    heads = "".join(f'<th scope="col"{kind}>{_text(name)}</th>' for kind, name in zip(kinds, one.headings))
    lines = (
        "<tr>" + "".join(f"<td{kind}>{_text(cell)}</td>" for kind, cell in zip(kinds, line)) + "</tr>"
        for line in one.lines
    )
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<h3>{_text(one.title)}</h3><div class="wide"><table>{body}</table></div>'


def _environment(title: str, table: kept.Table) -> str:
    pairs = [("run", title)]
    for name, label in FACTS.items():
        values = list(dict.fromkeys(str(table.fact(row, name)) for row in table.rows))
        pairs.append((label, ", ".join(_short(value for value in values if value not in ("None", "")))))
    command = {_command(table, row) for row in table.rows}
    pairs.append(
        ("command", "; ".join(_short(f"python -m runner {words}" for words in sorted(command) if words)))
    )
    git = [table.fact(row, "git") or {} for row in table.rows]
    commits = {f"{one['commit'][:12]}{' with changes' * bool(one.get('modified'))}" for one in git if one}
    pairs.append(("commit", ", ".join(sorted(commits))))
    lines = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in pairs if value)
    return f'<section id="environment"><h2>Environment</h2><dl>{lines}</dl></section>'


def _command(table: kept.Table, row: Row) -> str:
    folder = table.fact(row, "config_dir")
    return " ".join([*(["--config-dir", folder] if folder else []), *(table.fact(row, "command") or [])])


def _short(values: Iterable[str], most: int = 4) -> list[str]:
    found = list(values)
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more"]
