"""How near triage's predictions come: the workload's forms changed one by one, predicted against obtained.

    python tests/benchmarks/predictions.py outputs/published/h200/profile

First each form is timed alone, in both directions, at the size that the step calls it with; then the step is
profiled as it is, and after each change. Writes predictions.csv and a folder of tables for each profile.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import tempfile
from pathlib import Path

import yaml

from runner import cli
from runner.profile.before_after import STEP
from runner.profile.triage import gain_percent

ROOT = Path(__file__).resolve().parent.parent.parent
COLUMNS = (
    "change",
    "before_ms",
    "after_ms",
    "predicted_saving_ms",
    "obtained_saving_ms",
    "predicted_gain_percent",
    "obtained_gain_percent",
    "predicted_over_obtained_percent",
)
CHANGES = {
    "gelu_builtin": ["workload.gelu=builtin"],
    "attention_builtin": ["workload.attention=builtin"],
    "both": ["workload.gelu=builtin", "workload.attention=builtin"],
    "compile": ["workload.compile=true"],
}
KEPT = (
    "steps.csv",
    "operations.csv",
    "before_after.csv",
    "syncs.csv",
    "timeline.png",
    "profile.md",
    "environment.json",
)


def run(words: list[str], output: Path) -> Path:
    """The folder of one run. Raises RuntimeError where it failed."""
    if code := cli.main([*words, f"output={output}"]):
        raise RuntimeError(f"{' '.join(words)}: exit code {code}")
    return max(output.glob("*/*"), key=lambda path: path.stat().st_mtime)


def levers(sizes: dict, device: str, output: Path) -> None:
    """Times of the forms alone, where `levers.best` looks for them."""
    rows, wide = sizes["batch"] * sizes["tokens"], 4 * sizes["width"]
    heads, dim = sizes["heads"], sizes["width"] // sizes["heads"]
    shape = f"{{batch: {sizes['batch']}, heads: {heads}, rows: {sizes['tokens']}, dim: {dim}}}"
    common = [
        f"dtype={sizes['dtype']}",
        "direction=[forward,backward]",
        "variant=[naive,builtin]",
        f"device={device}",
    ]
    run(["op=gelu", f"shapes=[{{rows: {rows}, cols: {wide}}}]", *common], output)
    run(["op=attention", f"shapes=[{shape}]", *common], output)


def outcome(change: str, folder: Path) -> dict[str, str]:
    """The step's row of `before_after.csv` as one of predictions.csv."""
    with open(folder / "before_after.csv", newline="", encoding="utf-8") as file:
        step = next(row for row in csv.DictReader(file) if row["operation"] == STEP)
    before, after, saved, predicted = (
        float(step[name]) for name in ("before_us", "after_us", "saved_us", "predicted_saving_us")
    )
    figures = (before / 1e3, after / 1e3, predicted / 1e3, saved / 1e3)
    gains = (gain_percent(before, predicted), gain_percent(before, saved), 100 * (predicted / saved - 1))
    texts = [change, *(f"{value:.3f}" for value in figures), *(f"{value:.1f}" for value in gains)]
    return dict(zip(COLUMNS, texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    workload = yaml.safe_load((ROOT / "conf" / "workload" / "train_step.yaml").read_text())
    from runner.config.devices import resolve

    device = resolve(asked.device)
    with tempfile.TemporaryDirectory() as scratch:
        output, rows = Path(scratch), []
        levers(workload["sizes"][device.partition(":")[0]], device, output)
        words = ["mode=profile", "workload=train_step", "seed=1", f"device={device}"]
        folders = {"before": run(words, output)}
        for change, changed in CHANGES.items():
            folders[change] = run([*words, *changed, f"before={folders['before']}"], output)
            rows.append(outcome(change, folders[change]))
        for name, folder in folders.items():
            (asked.folder / name).mkdir(parents=True, exist_ok=True)
            for kept in KEPT:
                if (folder / kept).is_file():
                    shutil.copy(folder / kept, asked.folder / name / kept)
    with open(asked.folder / "predictions.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
