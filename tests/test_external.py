"""Nsight by way of programs of the same name that are not Nsight: commands, failures, tables."""

from __future__ import annotations

import csv
import stat
import sys
from pathlib import Path

import pytest

from runner.config.compose import compose
from runner.plan import plan
from runner.profile import nsight
from runner.profile.replay import Request

FAKE = """#!{python}
import pathlib, subprocess, sys
words = sys.argv[1:]
pathlib.Path({seen!r}).write_text("\\n".join(words))
start = words.index({python!r})
done = subprocess.run(words[start:])
sys.stdout.write({output!r})
sys.exit(done.returncode or {code})
"""
HEAD = '"ID","Kernel Name","Block Size","Grid Size",' + ",".join(f'"{m}"' for m in nsight.METRICS.values())
UNITS = '"","","","",' + ",".join('"x"' for _ in nsight.METRICS)
TABLE = f"""==PROF== Connected
{HEAD}
{UNITS}
"0","small","(128, 1, 1)","(8, 1, 1)","1000","64","32","10","5","50","16"
"1","large","(128, 1, 1)","(8, 1, 1)","9,000","1,000,000","500,000","91.5","20","80","32"
"""


@pytest.fixture
def request_of_add(tmp_path) -> Request:
    settings = compose(["op=add", "variant=[builtin]", "device=cpu", "shapes=smoke", "seed=1"])
    planned = plan(settings).cases[0]
    keep = str(tmp_path / "keep")
    return Request("run", "cpu", 1, keep, "add", planned=planned, indices=(0,))


def _fake(name: str, tmp_path: Path, monkeypatch, output: str = "", code: int = 0) -> Path:
    (tmp_path / "bin").mkdir(exist_ok=True)
    program, seen = tmp_path / "bin" / name, tmp_path / "seen"
    program.write_text(FAKE.format(python=sys.executable, seen=str(seen), output=output, code=code))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return seen


def test_nsys_runs_the_asked_calls_within_the_capture_range(request_of_add, tmp_path, monkeypatch):
    seen = _fake("nsys", tmp_path, monkeypatch)
    said = nsight.run("nsys", tmp_path / "out", request_of_add, {"builtin": []}, 120)
    words = seen.read_text().splitlines()
    assert words[:3] == ["profile", "--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    assert said == [f"open {tmp_path / 'out' / 'nsys.nsys-rep'} in Nsight Systems"]
    assert "replayed builtin" in (tmp_path / "out" / "nsys_all.log").read_text()


def test_ncu_picks_kernels_by_range_and_time_and_puts_bytes_beside_the_declared(
    request_of_add, tmp_path, monkeypatch
):
    seen = _fake("ncu", tmp_path, monkeypatch, TABLE)
    said = nsight.run("ncu", tmp_path / "out", request_of_add, {"builtin": ["large", "small"]}, 120)
    words = seen.read_text().splitlines()
    assert words[words.index("--nvtx-include") + 1] == "variant builtin/"
    assert words[words.index("--kernel-name") + 1] == "regex:^(large|small)$"
    with open(tmp_path / "out" / "ncu.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["kernel"], float(row["device_us"]), float(row["dram_read_bytes"])) for row in rows] == [
        ("large", 9.0, 1e6),
        ("small", 1.0, 64.0),
    ]
    case = request_of_add.planned.case
    assert float(rows[0]["declared_read_bytes"]) == pytest.approx(case.read_bytes)
    assert said[0].startswith("builtin: 2 kernels read 1 MB and wrote 0.5 MB of DRAM (declared: ")
    assert "at 92 % of the DRAM's rate and 20 % of the SMs', 80 % occupancy, 32 registers" in said[0]


@pytest.mark.parametrize("profiler", ["nsys", "ncu"])
def test_where_it_is_not_installed_the_command_is_told(profiler, request_of_add, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    sentence, line = nsight.run(profiler, tmp_path / "out", request_of_add, {"builtin": ["k"]}, 10)
    assert sentence == f"{profiler} is not on the PATH, so nothing was profiled with it; where it is, run"
    assert f" && {profiler} " in line and line.endswith(
        f"-m runner.profile.replay {tmp_path / 'out' / 'replay.pickle'}"
    )


def test_its_failure_is_a_sentence(request_of_add, tmp_path, monkeypatch):
    _fake("ncu", tmp_path, monkeypatch, "==ERROR== ERR_NVGPUCTRPERM: no permission\n", code=9)
    (sentence,) = nsight.run("ncu", tmp_path / "out", request_of_add, {"builtin": []}, 120)
    assert sentence.startswith("ncu failed (exit code 9: ==ERROR== ERR_NVGPUCTRPERM: no permission); see ")


def test_no_kernel_in_the_range_is_said(request_of_add, tmp_path, monkeypatch):
    _fake("ncu", tmp_path, monkeypatch, "==PROF== Disconnected\n")
    assert nsight.run("ncu", tmp_path / "out", request_of_add, {"builtin": []}, 120) == [nsight._EMPTY]


@pytest.mark.parametrize(
    "kernel, name",
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::F>(int)",
            "vectorized_elementwise_kernel",
        ),
        ("void at::native::(anonymous namespace)::CatArray<float>(int)", "CatArray"),
        ("triton_poi_fused_0", "triton_poi_fused_0"),
    ],
)
def test_base_names(kernel, name):
    assert nsight.base_name(kernel) == name


def test_small_kernels_are_not_picked():
    rows = [
        {"kind": "kernel", "kernel": name, "share_percent": share}
        for name, share in (("a", 98.0), ("b", 0.5))
    ]
    assert nsight.picked([*rows, {"kind": "memcpy", "kernel": "Memcpy", "share_percent": 50.0}]) == ["a"]


def test_the_ranges_of_a_step_follow_it():
    import torch

    from runner.profile.nvtx import Ranges, phases

    class Told(Ranges):
        def push(self, name):
            super().push(name)
            told.append(name)

    told: list[str] = []
    ranges = Told(False)
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    backward = torch.autograd.backward
    with phases(ranges):
        (weight * 2).sum().backward()
        optimizer.step()
    assert told == ["forward", "backward", "forward", "optimizer", "forward"]
    assert ranges.depth == 0 and torch.autograd.backward is backward
