"""What a call could reach at best on a device whose ceilings are known, and how far from it one is. Pure.

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009), with times in place of rates: a call
takes at least as long as its bytes need and as long as its operations need. `ceilings` is what
`runner.measure.ceilings.ceilings` returns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Share of writes in all bytes moved -> the pattern that is measured for it.
PATTERNS = ((0.0, "read"), (1 / 3, "triad"), (1 / 2, "copy"), (1.0, "write"))
PATTERN_NAMES = {"read": "read only", "triad": "three streams", "copy": "copy", "write": "write only"}

PRODUCTS = {"float32": "fp32_matmul", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}

BEATS_SHARE, BEATS_US = 0.03, 0.5  # faster than the limit by more than both is an error, not a record
AT_LIMIT_PERCENT = 95.0
LAUNCH_SHARE = 2.0  # floors: under this a call is at least half launch
DISTURBED = 1.5  # times what a larger transfer took: jitter between the small sizes stays below
SMALL_FLOORS = 20.0  # under this (60 us on an H200) a slow host is what a loop of such calls waits for

Curve = Sequence[Sequence[float]]  # (bytes moved, GB/s), ascending


@dataclass(frozen=True)
class Limit:
    """The least time of a call. Times in ms; `tflops` is the unit's rate, `gbps` the bandwidth for this size
    and mix (each None where it is not known or not used)."""

    ms: float
    memory_ms: float
    compute_ms: float | None
    bound: str  # memory | compute
    gbps: float | None
    tflops: float | None


def limit(
    read_bytes: float,
    write_bytes: float,
    flops: float,
    unit: str,
    work: float,
    ceilings: Mapping[str, Any],
) -> Limit:
    """The larger of the bytes' time and the time of `work * flops` on `unit`.

    A unit whose rate was not measured bounds nothing: `compute_ms` is then None. A call that moves and
    computes nothing has a limit of 0.
    """
    memory_us = memory_time_us(read_bytes, write_bytes, ceilings["bandwidth"])
    rate = ceilings["tflops"].get(unit)
    compute_us = work * flops / rate / 1e6 if rate else None
    compute_bound = compute_us is not None and compute_us > memory_us
    return Limit(
        ms=(compute_us if compute_bound else memory_us) / 1e3,
        memory_ms=memory_us / 1e3,
        compute_ms=None if compute_us is None else compute_us / 1e3,
        bound="compute" if compute_bound else "memory",
        gbps=(read_bytes + write_bytes) / memory_us / 1e3 if memory_us else None,
        tflops=rate,
    )


def unit_of(unit: str, dtype: str) -> str:
    """`product` is the unit of the dtype's own matrix products."""
    return PRODUCTS.get(dtype, "fp32") if unit == "product" else unit


def memory_time_us(read_bytes: float, write_bytes: float, bandwidth: Mapping[str, Curve]) -> float:
    """The time of the bytes at the bandwidth between the two patterns that are nearest in share of writes."""
    total = read_bytes + write_bytes
    if total <= 0:
        return 0.0
    share = write_bytes / total
    high = next(i for i in range(1, len(PATTERNS)) if share <= PATTERNS[i][0])
    (left, a), (right, b) = PATTERNS[high - 1], PATTERNS[high]
    speed_a, speed_b = (total / transfer_us(bandwidth[name], total) for name in (a, b))
    return total / (speed_a + (share - left) / (right - left) * (speed_b - speed_a))


def transfer_us(curve: Curve, total: float) -> float:
    """The time of moving `total` bytes in one pattern, from measured (bytes, GB/s).

    Time, not bandwidth, is interpolated, and straight between two sizes: a transfer takes a fixed time plus
    one that grows with its size, which a straight line meets exactly. (Straight in the logarithms it would
    lie above: 5 % too much between two sizes a factor of 4 apart, where a real kernel would beat it.)
    Above the largest size its bandwidth holds (which counts the start in: 0.3 % at 4 GiB on an H200). Below
    the smallest its time holds: those few KiB are a call that moves next to nothing, and no call is shorter
    than that. A size that was slower than a larger one is noise, and takes the larger one's time: a limit
    may be too low, but not too high.
    """
    sizes, times = _rising(curve)
    if total >= sizes[-1]:
        return times[-1] * total / sizes[-1]
    if total <= sizes[0]:
        return times[0]
    high = bisect_right(sizes, total)
    share = (total - sizes[high - 1]) / (sizes[high] - sizes[high - 1])
    return times[high - 1] + share * (times[high] - times[high - 1])


def disturbed(ceilings: Mapping[str, Any]) -> bool:
    """Whether something else used the device meanwhile: moving more took far less time than moving less."""
    for curve in ceilings["bandwidth"].values():
        if any(size / gbps / 1e3 > DISTURBED * time for (size, gbps), time in zip(curve, _rising(curve)[1])):
            return True
    return False


def _rising(curve: Curve) -> tuple[list[float], list[float]]:
    """Sizes in bytes and times in microseconds, both ascending."""
    sizes = [size for size, _ in curve]
    times = [size / gbps / 1e3 for size, gbps in curve]
    for i in range(len(times) - 2, -1, -1):
        times[i] = min(times[i], times[i + 1])
    return sizes, times


def floor_us(ceilings: Mapping[str, Any]) -> float:
    """What a call takes that moves next to nothing: the fastest pattern at its smallest size."""
    return min(_rising(curve)[1][0] for curve in ceilings["bandwidth"].values())


def bound_of(one: Limit, device_us: float, host_us: float, ceilings: Mapping[str, Any]) -> str:
    """memory, compute, or launch: what has to change for the call to become faster.

    It is launch in two cases. The device time is within `LAUNCH_SHARE` floors: half of it or more is the
    fixed cost of a launch. Or the host needs longer for the call than the device, and the call is small
    (within `SMALL_FLOORS` floors): back to back the device would wait. A long call whose host time is
    longer still is one that synchronizes, and not called launch. On a CPU the host is the device: only the
    first case is left.
    """
    floor = floor_us(ceilings)
    waits = ceilings["device_type"] != "cpu" and host_us > device_us and device_us <= SMALL_FLOORS * floor
    return "launch" if device_us <= LAUNCH_SHARE * floor or waits else one.bound


def beats(limit_ms: float, mean_ms: float) -> bool:
    """Whether a time is faster than the limit by more than 3 % and by more than 0.5 us."""
    return limit_ms > mean_ms * (1 + BEATS_SHARE) and (limit_ms - mean_ms) * 1e3 > BEATS_US


def verdict_words(
    percent: float, bound: str, host_us: float, device_us: float, floor: float | None = None
) -> str:
    """The head-room of a row in words; empty where no limit is known (`percent` 0).

    `percent` is of the limit; `floor` is `floor_us(ceilings)`. Times in microseconds.
    """
    if not percent:
        return ""
    if beats(percent / 100 * device_us / 1e3, device_us / 1e3):
        return f"{_times(percent / 100)}x faster than the limit: not to be believed before it is explained"
    if bound == "launch":
        return "launch-bound: " + _launch(host_us, device_us, floor)
    if percent >= AT_LIMIT_PERCENT:
        remedy = "moving fewer bytes helps" if bound == "memory" else "fewer operations or a faster unit help"
        return f"at the {bound} limit: only {remedy}"
    return f"{_times(100 / percent)}x from the {bound} limit"


def _launch(host_us: float, device_us: float, floor: float | None) -> str:
    device = f"{_times(device_us)} us on the device"
    if host_us > device_us:
        return f"{device}, {_times(host_us)} us on the host"
    return device + (f", where an empty call takes {_times(floor)}" if floor else "")


def _times(value: float) -> str:
    """Two digits of what is under ten, no decimals above."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def table(ceilings: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Bandwidth in GB/s as text: the header, then a row for each size and a column for each pattern."""
    curves = [ceilings["bandwidth"][name] for _, name in PATTERNS]
    header = ("bytes moved", *(f"{PATTERN_NAMES[name]} GB/s" for _, name in PATTERNS))
    rows = [(_size(points[0][0]), *(_rate(gbps) for _, gbps in points)) for points in zip(*curves)]
    return [header, *rows]


def rates_table(ceilings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Arithmetic rates as text: the header, then a row for each unit, slowest first."""
    rates = sorted(ceilings["tflops"].items(), key=lambda item: item[1])
    return [("unit", "TFLOP/s"), *((unit, _rate(tflops)) for unit, tflops in rates)]


def _size(count: float) -> str:
    """Rounded to a binary unit: a size may be a few elements short of a power of two."""
    unit = next((u for u in (30, 20, 10) if count >= 1 << u), 0)
    return f"{count / (1 << unit):.0f} {({30: 'GiB', 20: 'MiB', 10: 'KiB', 0: 'B'})[unit]}"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
