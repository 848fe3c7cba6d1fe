"""The limit of a call, from ceilings made up so that every answer is known."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.measure import roofline
from runner.measure.roofline import (
    Limit,
    beats,
    bound_of,
    disturbed,
    floor_us,
    limit,
    transfer_us,
    verdict_words,
)

MIB = 1 << 20
START_US = 3.0
SPEED = {"read": 4352.0, "triad": 4351.0, "copy": 4271.0, "write": 4683.0}  # GB/s
SIZES = [4 << 10, 64 << 10, *(MIB << i for i in range(0, 13, 2))]


def time_us(size: float, speed: float) -> float:
    """A fixed start, then a steady flow."""
    return START_US + size / speed / 1e3


def curve(speed: float) -> list[list[float]]:
    return [[size, size / time_us(size, speed) / 1e3] for size in SIZES]


CEILINGS = {
    "device_type": "cuda",
    "bandwidth": {name: curve(speed) for name, speed in SPEED.items()},
    "tflops": {"fp32": 60.0, "tf32": 400.0, "bf16": 780.0},
}


def memory(read: float, write: float) -> Limit:
    return limit(read, write, 0, "fp32", 1, CEILINGS)


@pytest.mark.parametrize(
    ("read", "write", "pattern"), [(6, 0, "read"), (4, 2, "triad"), (3, 3, "copy"), (0, 6, "write")]
)
def test_a_mix_that_was_measured_has_its_own_time(read, write, pattern):
    one = memory(read * 7 * MIB, write * 7 * MIB)  # 42 MiB lies between two measured sizes
    assert one.memory_ms * 1e3 == pytest.approx(time_us(42 * MIB, SPEED[pattern]), rel=1e-9)
    assert one.gbps == pytest.approx(42 * MIB / one.memory_ms / 1e6)
    assert (one.bound, one.ms) == ("memory", one.memory_ms)


@pytest.mark.parametrize(
    ("share", "left", "right", "way"),
    [(0.25, "read", "triad", 0.75), (0.4, "triad", "copy", 0.4), (0.75, "copy", "write", 0.5)],
)
def test_other_mixes_lie_between_the_two_nearest_in_bandwidth(share, left, right, way):
    total = 4096 * MIB
    speeds = [total / time_us(total, SPEED[name]) / 1e3 for name in (left, right)]
    expected = speeds[0] + way * (speeds[1] - speeds[0])
    assert memory((1 - share) * total, share * total).gbps == pytest.approx(expected, rel=1e-9)


def test_a_copy_of_16384_squared_floats_takes_what_it_takes():
    assert memory(1024 * MIB, 1024 * MIB).ms == pytest.approx(0.506, abs=0.001)


@given(st.floats(1, 2**33), st.floats(1, 2**33))
def test_the_limit_is_never_more_than_a_steady_flow_takes_and_rises_with_size(a, b):
    small, large = sorted((a, b))
    points = CEILINGS["bandwidth"]["copy"]
    assert transfer_us(points, small) <= transfer_us(points, large)
    for size in (small, large):
        if SIZES[0] <= size <= SIZES[-1]:
            assert transfer_us(points, size) <= time_us(size, SPEED["copy"]) * (1 + 1e-9)


def test_below_the_smallest_size_a_call_takes_what_that_takes():
    floor = time_us(SIZES[0], SPEED["write"])
    assert transfer_us(CEILINGS["bandwidth"]["write"], 4) == pytest.approx(floor)
    assert floor_us(CEILINGS) == pytest.approx(floor)


def test_above_the_largest_size_its_bandwidth_holds():
    points = CEILINGS["bandwidth"]["read"]
    assert 64 * SIZES[-1] / transfer_us(points, 64 * SIZES[-1]) / 1e3 == pytest.approx(points[-1][1])
    exact = time_us(64 * SIZES[-1], SPEED["read"])  # what the start adds to it is said in the docstring
    assert transfer_us(points, 64 * SIZES[-1]) == pytest.approx(exact, rel=0.004)


def test_a_size_that_was_slower_than_a_larger_one_takes_the_larger_ones_time():
    slow = [[1000, 0.1], [2000, 0.1], [4000, 4.0]]  # 10, 20 and 1 us
    assert [transfer_us(slow, size) for size in (500, 1000, 3000, 4000)] == [1, 1, 1, 1]


def test_arithmetic_bounds_when_it_takes_longer():
    one = limit(MIB, MIB, 6e12, "bf16", 1, CEILINGS)
    assert (one.bound, one.tflops) == ("compute", 780.0)
    assert one.ms == one.compute_ms == pytest.approx(6e12 / 780e12 * 1e3)
    assert one.memory_ms < 0.01


def test_work_multiplies_the_operations():
    once, thrice = (limit(MIB, MIB, 1e12, "tf32", work, CEILINGS) for work in (1, 3))
    assert thrice.compute_ms == pytest.approx(3 * once.compute_ms)


def test_a_unit_without_a_rate_bounds_nothing():
    one = limit(MIB, 0, 1e15, "fp64", 1, CEILINGS)
    assert (one.compute_ms, one.tflops, one.bound) == (None, None, "memory")
    assert one.ms == one.memory_ms


def test_nothing_to_do_has_no_limit():
    assert limit(0, 0, 0, "fp32", 1, CEILINGS) == Limit(0, 0, 0, "memory", None, 60.0)


def test_operations_alone_have_a_limit():
    one = limit(0, 0, 60e9, "fp32", 1, CEILINGS)
    assert (one.bound, one.gbps) == ("compute", None)
    assert one.ms == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("device_us", "host_us", "expected"),
    [
        (4.5, 2.0, "launch"),  # half of it or more is the start
        (6.7, 65.0, "launch"),  # small, and the host is slower
        (6.7, 5.0, "memory"),
        (500.0, 10.0, "memory"),
        (500.0, 900.0, "memory"),  # it synchronizes: the host waits for the device
    ],
)
def test_launch_bound(device_us, host_us, expected):
    assert bound_of(memory(MIB, MIB), device_us, host_us, CEILINGS) == expected


def test_on_a_cpu_a_slower_host_says_nothing():
    cpu = {**CEILINGS, "device_type": "cpu"}
    assert bound_of(memory(MIB, MIB), 6.7, 6.8, cpu) == "memory"
    assert bound_of(memory(MIB, MIB), 4.5, 4.5, cpu) == "launch"


@pytest.mark.parametrize(
    ("limit_us", "mean_us", "expected"),
    [
        (100, 98, False),  # 2 us, but 2 %
        (100, 96, True),
        (5, 4.6, False),  # 9 %, but 0.4 us
        (5, 4.4, True),
        (100, 200, False),
        (0, 3, False),
    ],
)
def test_faster_than_the_limit_is_3_percent_and_half_a_microsecond(limit_us, mean_us, expected):
    assert beats(limit_us / 1e3, mean_us / 1e3) is expected


@pytest.mark.parametrize(
    ("percent", "bound", "host_us", "device_us", "words"),
    [
        (99.4, "memory", 10, 507, "at the memory limit: only moving fewer bytes helps"),
        (97.0, "compute", 10, 507, "at the compute limit: only fewer operations or a faster unit help"),
        (47.0, "memory", 10, 507, "2.1x from the memory limit"),
        (0.4, "compute", 10, 507, "250x from the compute limit"),
        (60.0, "launch", 65, 6.7, "launch-bound: 6.7 us on the device, 65 us on the host"),
        (90.0, "launch", 2, 3.1, "launch-bound: 3.1 us on the device, where an empty call takes 2.9"),
        (200, "memory", 2, 50, "2.0x faster than the limit: not to be believed before it is explained"),
        (102, "memory", 2, 50, "at the memory limit: only moving fewer bytes helps"),
        (0, "memory", 2, 50, ""),
    ],
)
def test_head_room_in_words(percent, bound, host_us, device_us, words):
    assert verdict_words(percent, bound, host_us, device_us, 2.9) == words


def test_a_busy_machine_is_noticed():
    assert not disturbed(CEILINGS)
    points = [list(point) for point in CEILINGS["bandwidth"]["copy"]]
    points[1][1] /= 100
    assert disturbed({"bandwidth": {**CEILINGS["bandwidth"], "copy": points}})


def test_the_tables_are_text():
    rows = roofline.table(CEILINGS)
    assert rows[0] == (
        "bytes moved",
        "read only GB/s",
        "three streams GB/s",
        "copy GB/s",
        "write only GB/s",
    )
    assert [row[0] for row in rows[1:4]] == ["4 KiB", "64 KiB", "1 MiB"]
    assert rows[-1] == ("4 GiB", "4339", "4338", "4258", "4668")
    assert rows[1][1] == "1.36"
    assert roofline.rates_table(CEILINGS) == [
        ("unit", "TFLOP/s"),
        ("fp32", "60"),
        ("tf32", "400"),
        ("bf16", "780"),
    ]
    assert json.loads(json.dumps(rows)) == [list(row) for row in rows]
    assert all(math.isfinite(float(cell)) for row in rows[1:] for cell in row[1:])
