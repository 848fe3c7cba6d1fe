"""Gaps, the host's lead, who waited; kernels that a trace lost or has twice."""

from __future__ import annotations

import pytest

from runner.trace import overlap
from tests.synthetic_trace import Made


def test_a_device_that_is_fed_in_time_never_waits():
    made = Made().window("loop", 0, 100)
    for i in range(4):
        made.kernel("k", 20 + 50 * i, 50, host=(5 * i, 3))
    one = overlap.overlap(made.trace(), "loop")
    assert (one.span_us, one.busy_us, one.idle_us, one.waited, one.gaps) == (200, 200, 0, 0, ())
    assert one.busy_share == 1.0
    assert one.ahead_us == pytest.approx((62 + 107) / 2)  # lags 17, 62, 107, 152


def test_a_late_launch_leaves_a_gap_and_is_blamed():
    made = Made().window("loop", 0, 500).kernel("a", 10, 10, host=(0, 5)).kernel("b", 60, 10, host=(50, 5))
    one = overlap.overlap(made.trace(), "loop")
    (gap,) = one.gaps
    assert (gap.us, gap.by, one.waited, one.busy_us) == (40, "the host's launch", 1, 20)


def test_a_synchronize_in_a_gap_is_blamed():
    made = Made().window("loop", 0, 500).kernel("a", 10, 10, host=(0, 5))
    made.line("t.py:3 step", 6, 20).call("cudaStreamSynchronize", 7, 14).kernel("b", 60, 10, host=(50, 5))
    (gap,) = overlap.overlap(made.trace(), "loop").gaps
    assert (gap.by, gap.label) == ("cudaStreamSynchronize", "t.py:3 step")


def test_kernels_side_by_side_are_busy_once():
    made = Made().window("loop", 0, 100).kernel("a", 10, 20, host=(0, 1)).kernel("b", 20, 20, host=(2, 1))
    one = overlap.overlap(made.trace(), "loop")
    assert (one.busy_us, one.span_us) == (30, 30)


def test_the_hosts_time_is_split_into_launches_operators_and_python():
    made = Made().window("loop", 0, 100).op("aten::add", 10, 30).kernel("k", 30, 5, host=(20, 8))
    assert overlap.host_parts(made.op("aten::mul", 60, 10).trace(), "loop") == (8, 32, 60)


def test_a_device_that_stands_still_while_a_loader_loads_is_told():
    made = Made().window("loop", 0, 500).kernel("a", 10, 10, host=(0, 5)).kernel("b", 100, 10, host=(95, 2))
    made.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 15, 70)
    assert overlap.loading(made.trace(), "loop") == (70, 65)


def test_a_loader_that_the_device_need_not_wait_for_costs_nothing():
    made = Made().window("loop", 0, 500).kernel("a", 10, 200, host=(0, 5)).kernel("b", 210, 10, host=(95, 2))
    made.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 15, 70)
    assert overlap.loading(made.trace(), "loop") == (70, 0)


def test_an_empty_window_is_all_zero():
    assert overlap.overlap(Made().window("loop", 0, 10).trace(), "loop").busy_share == 0.0


def _two_calls() -> Made:
    made = Made().window("call 0", 0, 50).kernel("k", 10, 5, host=(1, 2))
    return made.window("call 1", 100, 50).kernel("k", 110, 5, host=(101, 2))


def test_a_whole_trace_has_no_fault():
    assert overlap.faults(_two_calls().trace(), ["call 0", "call 1"]) == []


def test_a_dropped_kernel_is_found():
    made = _two_calls().call("cudaLaunchKernel", 120, 2, correlation=77)
    assert "has no kernel" in overlap.faults(made.trace(), ["call 0", "call 1"])[0]


def test_a_duplicated_kernel_is_found():
    made = _two_calls()
    made.events.append(dict(made.events[2]))
    said = overlap.faults(made.trace(), ["call 0", "call 1"])
    assert "has 2 kernels" in said[0] and "different numbers" in said[1]


def test_the_kernels_of_a_graph_share_a_launch():
    made = Made().window("call 0", 0, 50).call("cudaGraphLaunch", 1, 2, correlation=5)
    for start in (10, 20):
        made.add("kernel", "k", start, 5, tid=7, correlation=5)
    assert overlap.faults(made.trace(), ["call 0"]) == []


def test_calls_that_differ_are_found():
    made = _two_calls().kernel("more", 130, 5, host=(121, 2))
    assert "different numbers of kernels: [1, 2]" in overlap.faults(made.trace(), ["call 0", "call 1"])[0]
