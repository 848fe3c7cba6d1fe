"""What the device can do is measured with the project's clock, kept, and measured again when it must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels.ceilings import fma, read
from runner.measure import ceilings, environment, roofline
from runner.measure.samples import Sample
from runner.measure.turns import clock_for

ROOT = Path(__file__).resolve().parent.parent
FACTS = {"device_name": "a chip", "device_uuid": "GPU-1", "driver": "580", "torch": "2.11", "cpu_threads": 2}


class ConstantClock:
    """Every call takes as long, in cold calls; a few are really made, to see that they can be."""

    event_overhead_us = 0.0

    def __init__(self, us: float) -> None:
        self.us = us

    def timer(self, trial, timing):
        assert timing == "cold"
        self.trial = trial
        return self

    def once(self, ready=None):
        return Sample(0, self.us, self.us), None

    def end_to_end_us(self):
        return self.us

    def synchronize(self):
        pass


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """A cache of the test's own, and nothing that takes long."""
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(ceilings._LARGEST, "cpu", 1 << 20)
    monkeypatch.setattr(ceilings, "_SIDES", (32, 64))


@pytest.fixture
def fixed(monkeypatch):
    """Figures without measuring; a list that grows by one whenever they are asked for."""
    asked = []
    points = [[4096, 1.0], [8192, 1.5]]
    figures = {
        "schema": ceilings.SCHEMA,
        "device_type": "cuda",
        "bandwidth": dict.fromkeys(roofline.PATTERN_NAMES, points),
        "tflops": {"fp32": 60.0},
    }

    def measure(clock, device, facts):
        asked.append(device)
        return figures

    monkeypatch.setattr(ceilings, "measure", measure)
    return asked


def get(refresh: bool = False, **facts) -> dict:
    return ceilings.ceilings(None, "cuda:0", FACTS | facts, refresh)


def test_a_real_cpu_is_measured():
    facts = environment.worker_facts("cpu")
    found = ceilings.measure(clock_for("cpu"), "cpu", facts)
    assert json.loads(json.dumps(found)) == found
    assert found["device"] == facts["device_name"]
    for points in found["bandwidth"].values():
        assert [round(size / 4096) for size, _ in points] == [1, 16, 64, 256]
        assert all(0.0001 < gbps < 10_000 for _, gbps in points)
    assert set(found["tflops"]) == {"fp32", "fp64", "bf16", "fp32_matmul"}
    assert all(0 < rate < 1000 for rate in found["tflops"].values())
    assert roofline.limit(1e6, 1e6, 1e6, "fp32", 1, found).ms > 0


def test_rates_are_bytes_and_operations_over_the_time_of_a_call():
    found = ceilings.measure(ConstantClock(10.0), "cpu", environment.worker_facts("cpu"))
    assert found["bandwidth"]["read"][-1] == [1 << 20, pytest.approx((1 << 20) / 10e3)]
    assert found["bandwidth"]["triad"][0] == [3 * 256 * 5, pytest.approx(0.384)]
    assert found["tflops"]["fp64"] == pytest.approx(2 * 64**3 / 10 / 1e6)


def test_a_slow_device_multiplies_smaller_matrices():
    found = ceilings.measure(ConstantClock(10_000.0), "cpu", environment.worker_facts("cpu"))
    assert found["tflops"]["fp32"] == pytest.approx(2 * 32**3 / 10_000 / 1e6)


def test_the_calls_move_the_bytes_they_claim():
    pool = torch.arange(3 * 4096, dtype=torch.float32)
    moved, (largest,) = ceilings._reads(pool, pool.nbytes)
    assert (moved, float(largest())) == (pool.nbytes, 3 * 4096 - 1)
    moved, (add,) = ceilings._triads(pool, pool.nbytes)
    assert (moved, float(add()[5])) == (pool.nbytes, 5 + 4096 + 5)
    moved, (copy,) = ceilings._copies(pool, pool.nbytes)
    assert (moved, float(copy()[5])) == (pool.nbytes, 5.0)
    moved, (fill,) = ceilings._writes(pool, pool.nbytes)
    assert moved == pool.nbytes and bool((fill() == 1).all())


def test_sizes_reach_the_largest_and_are_finer_from_a_mebibyte_on():
    mib = 1 << 20
    assert ceilings.sizes(6 * mib, 4) == [4096, 65536, 262144, mib, 4 * mib, 6 * mib]
    assert ceilings.sizes(4 * mib, 2) == [4096, 65536, 262144, mib, 2 * mib, 4 * mib]


def test_global_settings_stay_as_they_were():
    def state():
        matmul = torch.backends.cuda.matmul
        precision = torch.get_float32_matmul_precision()
        mkldnn = torch.backends.mkldnn.matmul.fp32_precision
        return matmul.fp32_precision, matmul.allow_tf32, precision, mkldnn, torch.is_grad_enabled()

    before, random = state(), torch.get_rng_state()
    ceilings.measure(ConstantClock(10.0), "cpu", environment.worker_facts("cpu"))
    assert state() == before
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("setting", ["high", "highest"])
def test_a_precision_that_was_chosen_is_given_back(setting):
    old = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        with pytest.raises(RuntimeError, match="stop"), ceilings._float32_products_in("tf32"):
            raise RuntimeError("stop")
        assert torch.get_float32_matmul_precision() == setting
    finally:
        torch.set_float32_matmul_precision(old)


def test_measured_once_and_then_read(fixed):
    first, second = get(), get()
    assert first == second and first["note"] == ""
    assert len(fixed) == 1
    get(refresh=True)
    assert len(fixed) == 2


@pytest.mark.parametrize("other", [{"device_uuid": "GPU-2"}, {"driver": "590"}, {"torch": "2.12"}])
def test_another_device_driver_or_torch_is_measured_anew(fixed, other):
    get()
    get(**other)
    assert len(fixed) == 2


def test_a_cpu_is_known_by_its_name_and_threads(fixed):
    get(device_uuid="")
    get(device_uuid="", cpu_threads=4)
    get(device_uuid="", device_name="another")
    assert len(fixed) == 3
    get(device_uuid="", cpu_threads=4)
    get(cpu_threads=4)
    get(cpu_threads=8)  # a GPU is the same whatever the CPU does
    assert len(fixed) == 4


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"schema": 1}', '{"bandwidth": 3}', "BAD RATE", "NO PATTERN", "\x00\xff"],
)
def test_a_broken_file_is_measured_again_and_said(fixed, text):
    get()
    (path,) = (ceilings.cache_folder() / "ceilings").iterdir()
    good = path.read_text()
    broken = json.loads(good)
    if text == "BAD RATE":
        text = json.dumps(broken | {"tflops": {"fp32": 0}})
    if text == "NO PATTERN":
        text = json.dumps(broken | {"bandwidth": {**broken["bandwidth"], "copy": []}})
    path.write_bytes(text.encode("latin-1"))
    again = get()
    assert "measured again" in again["note"] and str(path) in again["note"]
    assert len(fixed) == 2
    assert path.read_text() == good
    assert get()["note"] == ""
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing half-written is left


def test_a_cache_that_cannot_be_written_is_said_and_no_more(fixed, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path / "file"))
    assert "not kept" in get()["note"]
    assert get()["tflops"] == {"fp32": 60.0}


def test_figures_of_a_busy_machine_are_kept_and_say_so_every_time(fixed, monkeypatch):
    monkeypatch.setattr(ceilings, "disturbed", lambda found: True)
    assert "busy" in get()["note"]
    assert "busy" in get()["note"]
    assert len(fixed) == 1


def test_the_multiply_adds_are_all_made():
    rounds = 3
    out = torch.empty(2)
    fma.fma(out, rounds, factor=1.0, addend=1.0)
    before = sum(range(fma.BLOCK))
    assert out.tolist() == [before + fma.flops(out, rounds) / 2 / len(out)] * 2


def test_the_default_step_flips_between_two_values():
    even, odd = torch.empty(1), torch.empty(1)
    fma.fma(even, 1)
    assert even.tolist() == [sum(range(fma.BLOCK))]
    fma.fma_kernel[(1,)](odd, -1.0, 1.5, 3, BLOCK=fma.BLOCK, UNROLL=1)
    assert odd.tolist() == [1.5 * fma.BLOCK - sum(range(fma.BLOCK))]


@pytest.mark.parametrize("count", [1, read.BLOCK, read.BLOCK + 1, 3 * read.BLOCK - 7])
def test_the_reading_kernel_sums_each_block(count):
    x = (torch.arange(count) % 7).float()
    out = torch.full((4,), -1.0)
    read.block_sums(x, out)
    sums = [float(block.sum()) for block in x.split(read.BLOCK)]
    assert out.tolist() == sums + [-1.0] * (4 - len(sums))


COMPILE = """
import re, subprocess, tempfile
from triton import compile, knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernels.ceilings import fma
kinds = {"out": "*fp32", "factor": "fp32", "addend": "fp32", "rounds": "i32"}
kinds |= {"BLOCK": "constexpr", "UNROLL": "constexpr"}
source = ASTSource(fma.fma_kernel, kinds, {"BLOCK": fma.BLOCK, "UNROLL": fma.UNROLL})
kernel = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
    file.write(kernel.asm["cubin"])
    file.flush()
    sass = subprocess.run(
        [knobs.nvidia.nvdisasm.path, "-c", file.name], capture_output=True, text=True, check=True
    ).stdout
print(*re.findall(r"^ +/[*][0-9a-f]{4,}[*]/ +(?:@!?U?P[0-9] )?([A-Z0-9]+)", sass, re.M))
"""


@pytest.mark.slow
def test_on_hopper_the_loop_is_multiply_adds_without_spills():
    environment_ = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], cwd=ROOT, env=environment_, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    instructions = done.stdout.split()
    assert instructions.count("FFMA") == fma.UNROLL * fma.BLOCK // 128
    assert not {"LDL", "STL"} & set(instructions)


@pytest.mark.gpu
def test_a_gpu_reaches_what_its_kind_can():
    code = (
        "import json; from runner.measure import ceilings, environment;"
        "from runner.measure.turns import clock_for;"
    )
    code += "facts = environment.worker_facts('cuda:0');"
    code += "print(json.dumps(ceilings.measure(clock_for('cuda:0'), 'cuda:0', facts)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert not roofline.disturbed(found)
    assert set(found["tflops"]) == {"fp32", "fp32_matmul", "tf32", "bf16", "fp16", "fp64"}
    assert found["tflops"]["fp32"] > found["tflops"]["fp32_matmul"]
    assert found["tflops"]["bf16"] > found["tflops"]["tf32"] > found["tflops"]["fp32"]
    if "H200" in found["device"]:
        assert found["tflops"]["fp32"] > 0.9 * 67
        assert found["bandwidth"]["read"][-1][1] > 4200


def test_small_transfers_on_a_gpu_are_timed_often_and_by_their_fast_calls(monkeypatch):
    asked = {}

    def times(clock, device, calls, trials, typical):
        asked[calls] = trials, typical
        return [1.0] * 4

    monkeypatch.setattr(ceilings, "_times_us", lambda c, d, calls, *how: times(c, d, len(asked), *how))
    monkeypatch.setattr(ceilings, "memory_bytes", lambda device: 8 * 64 << 20)
    pattern = lambda pool, size: (size, [lambda: None])  # noqa: E731
    for name in ("_reads", "_triads", "_copies", "_writes"):
        monkeypatch.setattr(ceilings, name, pattern)
    monkeypatch.setattr(torch, "ones", lambda *size, **how: torch.empty(0))
    ceilings._bandwidth(None, "cuda:0")
    assert [trials for trials, _ in asked.values()] == [25] * (len(asked) - 1) + [5]
    typical = next(iter(asked.values()))[1]
    assert typical([3.0, 1.0, 2.0, 9.0, 4.0]) == pytest.approx(1.8)
