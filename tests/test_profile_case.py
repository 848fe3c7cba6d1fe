"""What a row says of its profile, and what is not known of bytes."""

from __future__ import annotations

import pytest

from runner.profile import case
from runner.trace import operators
from tests.synthetic_trace import Made

CASES = {  # kernels a call, device time, time from first to last, timed; begin and end of the sentence
    "one that agrees": ((1, 500.0, 500.0, 502.0), "1 kernel a call of 500 us", "against 502 us timed"),
    "one that does not": ((1, 930.0, 930.0, 856.0), "1 kernel a call of 930 us", "profile it again)"),
    "a short one": ((1, 4.0, 4.0, 5.1), "1 kernel a call of 4 us", "includes its launch)"),
    "several": (
        (12, 40.0, 376.0, 53.0),
        "12 kernels a call, 40 us in them",
        "the device waits between them)",
    ),
    "on a CPU": (("", 300.0, 0.0, 200.0), "300 us in its operators", "against 200 us timed"),
}


@pytest.mark.parametrize("figures, begin, end", CASES.values(), ids=CASES)
def test_a_profile_beside_the_timed_call(figures, begin, end):
    kernels, device, span, timed = figures
    facts, said = case.against({"kernels_per_call": kernels, "device_us": device, "span_us": span}, timed)
    assert said.startswith(f"profile: {begin}") and said.endswith(end)
    assert facts["difference_percent"] == pytest.approx(100 * (device / timed - 1))


def _moved(made: Made) -> float | None:
    read = made.trace()
    some, _ = operators.units(read, read, ["call 0"], "call 0", True)
    return case._moved(some)


def test_bytes_are_those_of_the_operators_that_launched():
    made = Made().window("call 0", 0, 100).op("aten::exp", 5, 20, shapes=[(10, 10)]).memory(400, 7)
    assert _moved(made.kernel("exp", 50, 10, host=(8, 2))) == 800


def test_of_a_kernel_without_an_operator_no_bytes_are_known():
    assert _moved(Made().window("call 0", 0, 100).kernel("_forward", 50, 10, host=(8, 2))) is None
