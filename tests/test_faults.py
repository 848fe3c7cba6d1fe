"""What a fault costs: one row, on a GPU too, and its words name the remedy where there is one."""

from __future__ import annotations

import csv

import pytest

from runner import driver
from runner.config.compose import compose
from runner.process.faults import said
from tests.test_driver import YAML

GPU = """
import torch, triton
import triton.language as tl

@triton.jit
def far(out, n: tl.constexpr):
    tl.store(out + (1 << 44) + tl.arange(0, n), 1.0)

def right(x):
    return x * 2

def illegal_address(x):
    far[(1,)](x, 128)
    return x * 2

def device_assert(x):
    return x[torch.full((1,), 1 << 30, device=x.device)] * x * 2

def device_hang(x):
    torch.cuda._sleep(50_000_000_000)
    return x * 2

def device_memory(x):
    return torch.empty(1 << 44, device=x.device)[: len(x)]

def host_memory(x):
    return torch.empty(1 << 50)[: len(x)].to(x.device)

def illegal_later(x):
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(1_000_000_000)
        far[(1,)](x, 128)
    return x * 2

def last(x):
    return x * 2
"""
NAMES = ["right", "illegal_address", "device_assert", "device_hang", "device_memory", "host_memory", "last"]


def rows(tmp_path, names, *words):
    """{variant: row} of a GPU run over these."""
    file = tmp_path / "faults.py"
    file.write_text(GPU)
    (tmp_path / "conf" / "op").mkdir(parents=True)
    lines = "\n".join(f"  {name}: {{target: '{file}:{name}'}}" for name in names)
    (tmp_path / "conf" / "op" / "double.yaml").write_text(YAML.format(file=file, variants=lines))
    fixed = ["op=double", "device=cuda", "trials=8", f"output={tmp_path / 'out'}"]
    outcome = driver.execute(compose([*fixed, *words], [str(tmp_path / "conf")]), show=False)
    driver.shutdown()
    with open(outcome.folder / "results.csv", newline="") as table:
        return {row["variant"]: row for row in csv.DictReader(table)}


@pytest.mark.gpu
def test_every_fault_of_a_gpu_costs_its_own_row_only(tmp_path):
    found = rows(tmp_path, NAMES, "limits.check_s=10")
    assert {name: row["status"] for name, row in found.items()} == {
        "right": "ok",
        "illegal_address": "error",
        "device_assert": "error",
        "device_hang": "timeout",
        "device_memory": "error",
        "host_memory": "error",
        "last": "ok",
    }
    assert "illegal memory access" in found["illegal_address"]["reason"]
    assert "device-side assert" in found["device_assert"]["reason"]
    assert "limits.check_s" in found["device_hang"]["reason"]
    assert found["device_memory"]["reason"].startswith("out of device memory: ")
    assert found["host_memory"]["reason"].startswith("out of host memory: ")


@pytest.mark.gpu
def test_a_late_fault_of_a_gpu_is_not_the_next_ones(tmp_path):
    found = rows(tmp_path, ["right", "illegal_later", "last"], "mode=check")
    assert found["right"]["status"] == "checked" and found["last"]["status"] == "checked"


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"])
def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(name, str(tmp_path / "file" / "cache"))
    with pytest.raises(OSError) as caught:
        (tmp_path / "file" / "cache").mkdir()
    assert said(caught.value).endswith(f"the cache cannot be written: set {name} to a folder that can")
    monkeypatch.delenv(name)
    assert "set" not in said(caught.value)


def test_host_memory_is_named():
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert said(caught.value).startswith("out of host memory: ")
    assert said(MemoryError("x")) == "out of host memory: MemoryError: x"
