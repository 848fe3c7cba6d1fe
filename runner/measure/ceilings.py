"""What this device can do, measured on it with the clock that times the variants: bandwidth and rates.

Bandwidth is that of four patterns by size, cold; a rate is that of one unit. Both are what the best known
code reaches on this very device, not what its data sheet says. Measured once, then kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from runner.build.library import BuildError, cache_folder
from runner.files import write_whole
from runner.measure.clock_cpu import last_level_cache_bytes
from runner.measure.environment import memory_bytes
from runner.measure.roofline import PATTERN_NAMES, disturbed
from runner.measure.samples import Trial
from runner.measure.stopping import Exactly
from runner.measure.turns import Watch, take_turns

SCHEMA = 2  # another number when what is measured changes: older files are then not read

_TRIALS = 10
_FEW = 5
_MANY = 25  # of small transfers, whose times scatter by a tenth
_SMALL = 32 << 20  # bytes
_PROBES = 3
_STEADY_TRIES = 5
_NEXT_TO_NOTHING = 4 << 10  # bytes: what a call takes that moves no more is the floor of every time
_FROM = 64 << 10
_FINE_FROM = 1 << 20  # on a GPU steps are finer from here on, where its L2 bends the curves
_LARGEST = {"cpu": 1 << 30, "cuda": 4 << 30}
_ALIGN = 64  # elements between two streams of the pool: 256 bytes, so that every load can be a wide one
_MATMUL_MS = 40.0  # of one product; the next larger side takes 8 times as long
_SIDES = (512, 1024, 2048, 4096, 8192)
_FMA_ROUNDS = 128  # about 2 ms where a multiprocessor has 128 cores
_MATRIX_UNITS = {
    "cpu": {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16},
    "cuda": {
        "fp32_matmul": torch.float32,
        "tf32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp64": torch.float64,
    },
}


def ceilings(clock, device: str, facts: dict[str, Any], refresh: bool = False) -> dict[str, Any]:
    """The ceilings of `device`, from the cache or measured now (seconds). JSON-able.

    `facts` is `environment.worker_facts(device)`. `bandwidth` holds [bytes, GB/s] by pattern (read, triad,
    copy, write), ascending; `tflops` the rate by unit; `note` what went wrong with the cache, if anything.
    `refresh` measures in any case. Raises torch.OutOfMemoryError when the device has no room for it.
    """
    try:
        path, note = cache_path(facts), ""
    except BuildError as error:
        path, note = None, f"The ceilings are not kept: {error}"
    if path and path.exists() and not refresh:
        try:
            found = _read(path)
            return found | {"note": _busy(found)}
        except (OSError, ValueError) as error:
            note = f"The ceilings kept in {path} cannot be read ({error}) and were measured again."
    found = measure(clock, device, facts)
    if path:
        note = _write(path, found) or note
    return found | {"note": note or _busy(found)}


def _busy(found: dict[str, Any]) -> str:
    """Kept all the same: measuring again in every run would take longer than many runs do."""
    if not disturbed(found):
        return ""
    return "the machine was busy when its ceilings were measured: mode=ceilings measures them again"


def measure(clock, device: str, facts: dict[str, Any]) -> dict[str, Any]:
    """All of it, measured now. No global setting is other than before afterwards."""
    with torch.no_grad():
        rates = _rates(clock, device)
        curves = _bandwidth(clock, device)
    if device != "cpu":
        torch.cuda.empty_cache()  # a case may need the gigabytes
    return {
        "schema": SCHEMA,
        "device": facts["device_name"],
        "device_type": _kind(device),
        "uuid": facts["device_uuid"],
        "driver": facts.get("driver", ""),
        "torch": facts["torch"],
        "threads": facts["cpu_threads"] if device == "cpu" else None,
        "time_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "bandwidth": curves,
        "tflops": rates,
    }


def cache_path(facts: dict[str, Any]) -> Path:
    """The file for this device, driver and torch; on a CPU for this model and number of threads."""
    own = facts["device_uuid"] or [facts["device_name"], facts["cpu_threads"]]
    key = json.dumps([SCHEMA, own, facts.get("driver", ""), facts["torch"]])
    return cache_folder() / "ceilings" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _read(path: Path) -> dict[str, Any]:
    """Raises ValueError when the file is not what `_write` writes."""
    found = json.loads(path.read_text())
    try:
        numbers = [x for name in PATTERN_NAMES for point in found["bandwidth"][name] for x in point]
        numbers += found["tflops"].values()
        sound = bool(found["tflops"]) and found["device_type"] in _LARGEST and found["schema"] == SCHEMA
        sound = sound and all(found["bandwidth"][name] for name in PATTERN_NAMES)
        sound = sound and all(math.isfinite(x) and x > 0 for x in numbers)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not sound:
        raise ValueError("a figure is missing or not positive")
    return found


def _write(path: Path, found: dict[str, Any]) -> str:
    """Whole or not at all; why not, in a sentence."""
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, json.dumps(found, indent=1))
    except OSError as error:
        return f"The ceilings are not kept: {path} cannot be written ({error.strerror or error})."
    return ""


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _times_us(
    clock, device: str, calls: list[Callable], trials: int = _FEW, typical: Callable = statistics.median
) -> list[float]:
    """Microseconds of each call, in turns: what is `typical` of its times, and on a CPU the fastest.

    What else runs on a machine only ever slows a call down, and a ceiling that a neighbour lowered is none.
    """
    rules = [Exactly(trials - 1) for _ in calls]  # the closing round makes one more
    series = take_turns(clock, [Trial(call) for call in calls], rules, "cold", 1, Watch(), end_to_end=0)
    return [(min if device == "cpu" else typical)(one.device_us) for one in series]


def _fastest_fifth(times_us: list[float]) -> float:
    """Of a transfer: by the median of five, kernels of 3 us were faster than the ceiling by a seventh."""
    return statistics.quantiles(times_us, n=5, method="inclusive")[0]


def _bandwidth(clock, device: str) -> dict[str, list[list[float]]]:
    """[bytes, GB/s] by pattern; at each size the fastest of the calls that move as many bytes."""
    largest = min(_LARGEST[_kind(device)], memory_bytes(device) // 8)
    if device == "cpu":
        largest = min(largest, 4 * last_level_cache_bytes())
    pool = torch.ones(largest // 4, dtype=torch.float32, device=device)
    patterns = {"read": _reads, "triad": _triads, "copy": _copies, "write": _writes}
    curves: dict[str, list[list[float]]] = {name: [] for name in patterns}
    for size in sizes(largest, 4 if device == "cpu" else 2):
        found = {name: make(pool, size) for name, make in patterns.items()}
        calls = [call for _, some in found.values() for call in some]
        trials = _MANY if size <= _SMALL and device != "cpu" else _FEW
        times = iter(_times_us(clock, device, calls, trials, _fastest_fifth))
        for name, (moved, some) in found.items():
            fastest = min(next(times) for _ in some)
            curves[name].append([moved, moved / fastest / 1e3])
    return curves


def sizes(largest: int, step: int) -> list[int]:
    """Bytes up to `largest`, each 4 times the one before, from `_FINE_FROM` on `step` times."""
    found, size = [_NEXT_TO_NOTHING], _FROM
    while size < largest:
        found.append(size)
        size *= 4 if size < _FINE_FROM else step
    return [*found, largest]


def _streams(pool: torch.Tensor, size: int, count: int) -> tuple[int, list[torch.Tensor]]:
    """`count` arrays of equal length in `pool` that are `size` bytes together (a little less when it does
    not divide), and those bytes."""
    each = size // pool.itemsize // count // _ALIGN * _ALIGN
    return each * count * pool.itemsize, [pool[i * each : (i + 1) * each] for i in range(count)]


def _reads(pool: torch.Tensor, size: int) -> tuple[int, list[Callable]]:
    moved, (x,) = _streams(pool, size, 1)
    sink = torch.empty((), dtype=x.dtype, device=x.device)
    calls = [partial(torch.amax, x, dim=0, out=sink)]  # on a CPU a little ahead of torch.sum
    if x.is_cuda:
        from kernels.ceilings import read

        partials = torch.empty(-(-x.numel() // read.BLOCK), dtype=x.dtype, device=x.device)
        calls += [partial(torch.sum, x, dim=0, out=sink), partial(read.block_sums, x, partials)]
    return moved, calls


def _triads(pool: torch.Tensor, size: int) -> tuple[int, list[Callable]]:
    moved, (a, b, out) = _streams(pool, size, 3)
    return moved, [partial(torch.add, a, b, out=out)]


def _copies(pool: torch.Tensor, size: int) -> tuple[int, list[Callable]]:
    """The copy, and on a GPU also an elementwise kernel, which starts sooner than the driver's copy."""
    moved, (source, sink) = _streams(pool, size, 2)
    calls = [partial(sink.copy_, source)]
    return moved, [*calls, partial(torch.abs, source, out=sink)] if source.is_cuda else calls


def _writes(pool: torch.Tensor, size: int) -> tuple[int, list[Callable]]:
    moved, (out,) = _streams(pool, size, 1)
    return moved, [partial(out.fill_, 1.0)]


def _rates(clock, device: str) -> dict[str, float]:
    """TFLOP/s by unit. On a CPU there is no kernel of bare multiply-adds: fp32 is that of the product."""
    kind = _kind(device)
    rates = {unit: _matmul_tflops(clock, device, dtype, unit) for unit, dtype in _MATRIX_UNITS[kind].items()}
    return rates | ({"fp32_matmul": rates["fp32"]} if kind == "cpu" else {"fp32": _fma_tflops(clock, device)})


def _fma_tflops(clock, device: str) -> float:
    from kernels.ceilings import fma

    out = fma.output(device)
    (us,) = _times_us(clock, device, [partial(fma.fma, out, _FMA_ROUNDS)])
    return fma.flops(out, _FMA_ROUNDS) / us / 1e6


def _matmul_tflops(clock, device: str, dtype: torch.dtype, unit: str) -> float:
    """Of the largest square product that takes at most `_MATMUL_MS`. Its factors are random: zeros draw
    less power, so that the clock stays higher than any use lets it."""
    with _float32_products_in("tf32" if unit == "tf32" else "ieee"):
        side = _SIDES[0]
        for larger in _SIDES[1:]:
            us = _steady_us(clock, device, _product(side, dtype, device), _PROBES)
            if 8 * us > _MATMUL_MS * 1e3:
                break
            side = larger
        us = _steady_us(clock, device, _product(side, dtype, device), _TRIALS)
    return 2 * side**3 / us / 1e6


def _steady_us(clock, device: str, call: Callable, trials: int) -> float:
    """Timed again until two timings agree within a factor of two: a library's first calls may be slow."""
    before = math.inf
    for _ in range(_STEADY_TRIES):
        (us,) = _times_us(clock, device, [call], trials)
        if before / 2 < us < 2 * before:
            break
        before = us
    return min(us, before)


def _product(side: int, dtype: torch.dtype, device: str) -> Callable:
    draw = torch.Generator(device).manual_seed(0)  # its own: the global one stays where it is
    a, b = (torch.randn(side, side, generator=draw, device=device, dtype=dtype) for _ in range(2))
    return partial(torch.matmul, a, b, out=torch.empty_like(a))


@contextmanager
def _float32_products_in(precision: str) -> Iterator[None]:
    """`tf32` or `ieee`, on CUDA and on the CPU; what was set before is set again.

    Only this newer interface is used: mixing in `allow_tf32` makes torch refuse to read either.
    """
    nodes = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    before = [node.fp32_precision for node in nodes]
    try:
        nodes[0].fp32_precision = precision
        nodes[1].fp32_precision = "ieee"
        yield
    finally:
        for node, old in zip(nodes, before):
            node.fp32_precision = old
