"""How true the times are: the harness against a profiler, a known spin, itself, another harness. Needs a GPU.

    python tests/benchmarks/timing_truth.py --csv timing_truth.csv [--only spin,sleep,...]

Parts: `ncu` (device time against Nsight Compute's gpu__time_duration), `spin` (a kernel that spins a known
time), `sleep` (a host that sleeps before it launches), `processes` (the ratio of two variants in five fresh
processes), `aa` (the same variant under two names), `wall` (time to a figure, against triton's do_bench).
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runner import load  # noqa: E402
from runner.measure.samples import Trial  # noqa: E402
from runner.measure.turns import Watch, clock_for, rule_for, take_turns  # noqa: E402

Row = tuple[str, str, float, float, str]  # part, case, measured, expected, goal

# Variants that launch exactly one kernel, and sizes in elements of the output.
SINGLE = {"gelu": "triton_block", "softmax": "triton_row", "add": "triton_block", "cdist": "triton_tile"}
SIDES = (512, 2048, 8192)


@triton.jit
def spin_kernel(out, nanoseconds):
    start = globaltimer()
    now = start
    while now - start < nanoseconds:
        now = globaltimer()
    tl.store(out, now - start)


def call_of(op: str, side: int, dtype: torch.dtype):
    """A callable of one kernel launch on fresh normal inputs."""
    fn = load(op, SINGLE[op], "cuda")
    x = torch.randn(side, side, device="cuda").to(dtype)
    if op == "gelu":
        return lambda: fn(x, approximate="tanh")
    if op == "softmax":
        return lambda: fn(x, dim=-1)
    if op == "add":
        y = torch.randn_like(x)
        return lambda: fn(x, y)
    points = torch.randn(1, side, 16, device="cuda").to(dtype)
    return lambda: fn(points, points, p=2.0)


def points() -> list[tuple[str, int, torch.dtype]]:
    return list(itertools.product(SINGLE, SIDES, (torch.float32, torch.bfloat16)))


def profiled() -> None:
    """Run under ncu: each point's call three times between start and stop."""
    cudart = torch.cuda.cudart()
    for point in points():
        call = call_of(*point)
        call()
        torch.cuda.synchronize()
        cudart.cudaProfilerStart()
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        cudart.cudaProfilerStop()


def ncu() -> Iterator[Row]:
    """Within 2 % or 1 us of Nsight Compute, whose caches are flushed too and whose clocks are left alone."""
    command = [shutil.which("ncu") or "ncu", "--profile-from-start", "off", "--clock-control", "none"]
    command += ["--metrics", "gpu__time_duration.sum", "--csv", "--print-units", "base"]
    command += [sys.executable, __file__, "--profiled"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    table = csv.DictReader(io.StringIO("\n".join(lines[head:])))
    times = [float(row["Metric Value"].replace(",", "")) / 1e3 for row in table]  # nanoseconds
    if len(times) != 3 * len(points()):
        raise RuntimeError(f"ncu saw {len(times)} kernels, expected {3 * len(points())}")
    for i, (op, side, dtype) in enumerate(points()):
        profiler = statistics.median(times[3 * i : 3 * i + 3])
        ours = device_us(call_of(op, side, dtype))
        yield "ncu", f"{op} {side}x{side} {str(dtype)[6:]}", ours, profiler, "within 2 % or 1 us"


def device_us(call, trials: int = 50) -> float:
    """Mean device time of a call, by the harness."""
    return series_of([call], trials)[0].mean_us


class Timed:
    def __init__(self, series) -> None:
        self.mean_us = statistics.fmean(series.device_us)
        self.host_us = statistics.median(sample.host_us for sample in series.samples)


_CLOCK = []


def series_of(calls: list, trials: int) -> list[Timed]:
    if not _CLOCK:
        _CLOCK.append(clock_for("cuda:0"))
    rules = [rule_for(trials, 0.005, 20, 10_000, 2.0) for _ in calls]
    series = take_turns(_CLOCK[0], [Trial(call) for call in calls], rules, "cold", 5, Watch())
    return [Timed(one) for one in series]


def spin() -> Iterator[Row]:
    """Linear within 1 % or 0.5 us. An empty spin's own time (launch and first reading) is taken off."""
    out = torch.zeros(1, dtype=torch.int64, device="cuda")
    empty = device_us(lambda: spin_kernel[(1,)](out, 0))
    for microseconds in (5, 10, 20, 50, 100, 500, 1_000, 5_000, 10_000, 50_000):
        trials = 30 if microseconds < 5_000 else 10
        reads, spun = spin_once(out, microseconds, trials)
        yield "spin", f"{microseconds} us", reads - empty, spun, "within 1 % or 0.5 us"
    yield "spin", "0 us (taken off the others)", empty, empty, ""


def spin_once(out: torch.Tensor, microseconds: int, trials: int) -> tuple[float, float]:
    """Device time, and what the kernel itself says that it spun."""
    reads = device_us(lambda: spin_kernel[(1,)](out, microseconds * 1000), trials)
    return reads, out.item() / 1e3


def sleep() -> Iterator[Row]:
    """A host that sleeps 200 us before it launches: the same device time, and host time that shows it."""
    x = torch.randn(8192, 8192, device="cuda")

    def sleepy():
        end = time.perf_counter_ns() + 200_000
        while time.perf_counter_ns() < end:
            pass
        return torch.nn.functional.gelu(x)

    plain, slept = series_of([lambda: torch.nn.functional.gelu(x), sleepy], 100)
    yield "sleep", "device time, us", slept.mean_us, plain.mean_us, "within 1 %"
    yield "sleep", "host time, us", slept.host_us - plain.host_us, 200.0, "shows the 200 us"


def processes() -> Iterator[Row]:
    """The ratio of two variants in five fresh processes: within 0.5 % above 50 us, 3 % below."""
    for side, goal in ((8192, 0.5), (1024, 3.0)):
        ratios = [ratio_in_a_process(side) for _ in range(5)]
        middle = statistics.median(ratios)
        worst = max(ratios, key=lambda ratio: abs(ratio - middle))
        name = f"gelu {side}x{side} cuda_thread over builtin, worst of 5"
        yield "processes", name, worst, middle, f"within {goal} %"


def ratio_in_a_process(side: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        words = ["op=gelu", "variant=[builtin,cuda_thread]", f"shape.rows={side}", f"shape.cols={side}"]
        command = [sys.executable, "-m", "runner", *words, f"output={folder}"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        with open(next(Path(folder).rglob("results.csv")), newline="") as table:
            mean = {row["variant"]: float(row["mean_ms"]) for row in csv.DictReader(table)}
    return mean["cuda_thread"] / mean["builtin"]


def aa() -> Iterator[Row]:
    """The same call under two names: under 0.3 % apart above 50 us."""
    for side in (4096, 8192, 16384):
        x = torch.randn(side, side, device="cuda")
        calls = [lambda x=x: torch.nn.functional.gelu(x)] * 2
        a, b = series_of(calls, 100)
        yield "aa", f"gelu {side}x{side}", a.mean_us, b.mean_us, "within 0.3 %" if a.mean_us > 50 else ""


def wall() -> Iterator[Row]:
    """Seconds to a figure at 0.5 %, warm, against triton.testing.do_bench at its defaults."""
    for side in (1024, 4096, 8192):
        x = torch.randn(side, side, device="cuda")

        def call(x=x):
            return torch.nn.functional.gelu(x)

        series_of([call], 0)  # the clock and the kernel are warm
        triton.testing.do_bench(call)
        start = time.perf_counter()
        series_of([call], 0)
        ours = time.perf_counter() - start
        start = time.perf_counter()
        triton.testing.do_bench(call)
        theirs = time.perf_counter() - start
        yield "wall", f"gelu {side}x{side}, seconds", ours, theirs, "no more than"


PARTS = {"spin": spin, "sleep": sleep, "aa": aa, "wall": wall, "processes": processes, "ncu": ncu}


def met(measured: float, expected: float, goal: str) -> str:
    """Whether a goal in words holds; empty where there is none."""
    off = abs(measured - expected)
    if goal.startswith("within"):
        percent = float(goal.split()[1])
        spare = float(goal.split()[-2]) if "or" in goal else 0.0
        return "yes" if off <= max(percent / 100 * expected, spare) else "no"
    if goal == "no more than":
        return "yes" if measured <= expected else "no"
    return "yes" if goal and off <= 0.1 * expected else "no" if goal else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", default="timing_truth.csv")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--profiled", action="store_true", help="what ncu runs")
    asked = parser.parse_args()
    if asked.profiled:
        return profiled()
    with open(asked.csv, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["part", "case", "measured", "expected", "difference_percent", "goal", "met"])
        for part in asked.only.split(","):
            for name, case, measured, expected, goal in PARTS[part]():
                percent = 100 * (measured / expected - 1) if expected else 0.0
                cells = [name, case, f"{measured:.4f}", f"{expected:.4f}", f"{percent:+.2f}", goal]
                writer.writerow([*cells, met(measured, expected, goal)])
                file.flush()
                print("  ".join([*cells, met(measured, expected, goal)]), flush=True)


if __name__ == "__main__":
    main()
