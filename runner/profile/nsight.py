"""Nsight Systems and Nsight Compute on exactly the asked calls, by `runner.profile.replay`. No torch here."""

from __future__ import annotations

import csv
import io
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.files import ROOT
from runner.profile.replay import Request, variant_range

REQUEST = "replay.pickle"
METRICS = {  # column -> what Nsight Compute calls it; base units: bytes, nanoseconds, percent
    "device_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "dram_percent": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
}
NCU_COLUMNS = ("variant", "kernel", "grid", "block", *METRICS, "declared_read_bytes", "declared_write_bytes")
LEAST_PERCENT = 1.0  # of the device time: kernels with less are left out by Nsight Compute


def command(profiler: str, folder: Path, name: str, kernels: Sequence[str] = ()) -> list[str]:
    """The command line that profiles the request in `folder`; `name` is the variant that ncu looks at."""
    replay = [sys.executable, "-m", "runner.profile.replay", str(folder / REQUEST)]
    if profiler == "nsys":
        capture = ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
        out = ["--trace=cuda,nvtx,osrt", "--force-overwrite=true", f"--output={folder / 'nsys'}"]
        return ["nsys", "profile", *capture, *out, *replay]
    picked = ["--nvtx", "--nvtx-include", f"{variant_range(name)}/"]
    if kernels:
        picked += ["--kernel-name", f"regex:^({'|'.join(kernels)})$"]
    how = ["--profile-from-start", "off", "--clock-control", "none", "--target-processes", "all"]
    form = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS.values())]
    return ["ncu", *how, *picked, *form, *replay]


def run(
    profiler: str, folder: Path, request: Request, kernels: Mapping[str, Sequence[str]], limit_s: float
) -> list[str]:
    """Sentences for the user: where the report is, or why there is none. ncu also writes `ncu.csv`.

    `kernels` are, by variant, the names of those that take most of its time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REQUEST).write_bytes(pickle.dumps(request))
    names = list(kernels) if profiler == "ncu" else [""]
    commands = {name: command(profiler, folder, name, kernels.get(name, ())) for name in names}
    if shutil.which(profiler) is None:
        lines = [f"  cd {shlex.quote(str(ROOT))} && {shlex.join(each)}" for each in commands.values()]
        return [f"{profiler} is not on the PATH, so nothing was profiled with it; where it is, run", *lines]
    said, rows = [], []
    for name, words in commands.items():
        output, sentence = _run(words, folder / f"{profiler}_{name or 'all'}.log", limit_s)
        if sentence:
            said.append(sentence)
        elif profiler == "ncu":
            rows += [row | {"variant": name} for row in parsed(output)]
    if profiler == "nsys" and not said:
        return [f"open {folder / 'nsys.nsys-rep'} in Nsight Systems"]
    return said + (_written(folder, rows, request) if rows else [] if said else [_EMPTY])


_EMPTY = "ncu saw no kernel in the variant's range"


def _run(words: Sequence[str], log: Path, limit_s: float) -> tuple[str, str]:
    """(its output, nothing) or (nothing, why it failed)."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(
            [shutil.which(words[0]) or words[0], *words[1:]],
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=environment,
            cwd=ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"{words[0]} was still at work after {limit_s:g} s (limits.profile_s)"
    log.write_text(done.stdout + done.stderr, encoding="utf-8", errors="backslashreplace")
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        wrong = next((line for line in lines if line.startswith("==ERROR==")), lines[-1] if lines else "")
        return "", f"{words[0]} failed (exit code {done.returncode}: {wrong}); see {log}"
    return done.stdout, ""


def parsed(output: str) -> list[dict[str, Any]]:
    """The kernels of Nsight Compute's raw CSV page, one row a launch."""
    lines = output.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        return []
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[head:]))))
    return [_row(row) for row in rows if row["ID"]]  # the line below the head has the units, and no ID


def _row(row: Mapping[str, str]) -> dict[str, Any]:
    numbers = {column: _number(row.get(metric, "")) for column, metric in METRICS.items()}
    numbers["device_us"] /= 1e3
    launch = {
        "kernel": row["Kernel Name"],
        "grid": row.get("Grid Size", ""),
        "block": row.get("Block Size", ""),
    }
    return launch | numbers


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:  # "n/a"
        return float("nan")


def _written(folder: Path, rows: list[dict[str, Any]], request: Request) -> list[str]:
    from runner.files import write_csv

    case = request.planned.case if request.planned else None
    declared = (
        {"declared_read_bytes": case.read_bytes, "declared_write_bytes": case.write_bytes} if case else {}
    )
    rows.sort(key=lambda row: -row["device_us"])
    write_csv(folder / "ncu.csv", NCU_COLUMNS, [row | declared for row in rows])
    said = []
    for name in dict.fromkeys(row["variant"] for row in rows):
        own = [row for row in rows if row["variant"] == name]
        said.append(_sentence(name, own, case))
    return [*said, f"every kernel: {folder / 'ncu.csv'}"]


def _sentence(name: str, rows: Sequence[Mapping[str, Any]], case: Any) -> str:
    read, written = (sum(row[f"dram_{way}_bytes"] for row in rows) / 1e6 for way in ("read", "write"))
    first = rows[0]
    beside = f" (declared: {case.read_bytes / 1e6:.4g} and {case.write_bytes / 1e6:.4g} MB)" if case else ""
    moved = f"{len(rows)} kernels read {read:.4g} MB and wrote {written:.4g} MB of DRAM{beside}"
    return (
        f"{name}: {moved}; the largest"
        f" at {first['dram_percent']:.0f} % of the DRAM's rate and {first['sm_percent']:.0f} % of the SMs', "
        f"{first['occupancy_percent']:.0f} % occupancy, {first['registers']:.0f} registers"
    )


def base_name(kernel: str) -> str:
    """What Nsight Compute's --kernel-name compares with: the function without namespaces and templates."""
    text = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", text, maxsplit=1)[0]
    return head.rpartition("::")[2].strip()


def picked(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the kernels of a `kernels.csv` that take at least `LEAST_PERCENT` of the time."""
    own = [row for row in rows if row["kind"] == "kernel" and float(row["share_percent"]) >= LEAST_PERCENT]
    return list(dict.fromkeys(re.escape(base_name(row["kernel"])) for row in own))
