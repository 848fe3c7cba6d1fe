"""Each rule of triage on an operation made for it; Amdahl's gain; when nothing is worth doing."""

from __future__ import annotations

import dataclasses

import pytest

from runner.profile import before_after, rules, triage
from runner.profile.levers import Measured
from runner.profile.rules import Finding, Step
from runner.trace import operations
from runner.trace.events import Activity, Op
from runner.trace.operations import Instance, Operation
from runner.trace.operators import Unit

STEP = Step(step_us=1000, device_us=950, busy_us=950, host_us=200, python_us=50, kernels=100, on_gpu=True)
HOST_BOUND = dataclasses.replace(STEP, busy_us=300, host_us=900, python_us=100)
CPU = dataclasses.replace(STEP, on_gpu=False)
MEASURED = Measured("gelu", "tuned", 10.0, 5.0, "outputs/published/h200/x/results.csv", "{}")


def _operation(
    kind="chain",
    us=400.0,
    kernels=8,
    name="gelu",
    ops=("mul", "add", "tanh"),
    back=0.0,
    dtype="float",
    dims=((10, 10),),
):
    units = []
    for i in range(kernels):
        what = f"aten::{ops[i % len(ops)]}"
        op = Op(what, 0, 1, 1, None, None, ((100, 4),), dims, (dtype,), launched=1)
        activity = Activity("kernel", "k", 0, 1, 7, i, {})
        units.append(Unit("k", (us - back) / kernels, op, op, "forward", "m.py:3 f", activity))
    instances = [Instance(units)]
    if back:
        op = Op("aten::mul", 0, 1, 1, None, None, ((100, 4),), ((10, 10),), (dtype,), launched=1)
        instances.append(
            Instance(
                [Unit("k", back, op, op, "backward", "m.py:3 f", Activity("kernel", "k", 0, 1, 7, 9, {}))]
            )
        )
    return Operation(name, "m.py:3", kind, instances)


def _finding(operation=None, step=STEP, limit=40.0, roof="memory", pattern="", measured=None, waited=0.0):
    operation = operation or _operation()
    share = 100 * operation.us / step.device_us
    percent = 100 * limit / operation.us if limit else None
    return Finding(operation, step, share, limit, roof, percent, pattern, measured, waited)


def _product(**changes):
    made = {name: changes.pop(name) for name in ("dtype", "dims") if name in changes}
    return _finding(_operation("product", kernels=1, ops=("mm",), **made), roof="compute", **changes)


def _norm(us=400.0):
    return _finding(_operation("layer", us=us, kernels=1, ops=("native_layer_norm",)))


EVEN = ((64, 128), (128, 192))
LOADER = _finding(operations.grouped([operations.loader("t.py:4 step", 0.0)])[0], waited=300.0, limit=0.0)
PYTHON = dataclasses.replace(HOST_BOUND, python_us=800)
CASES = {  # finding, begin of its lever, constraint
    "small": (_finding(_operation(us=10)), "nothing", "memory"),
    "measured": (_finding(pattern="gelu", measured=MEASURED), "gelu variant=tuned", "memory"),
    "library": (_finding(pattern="gelu"), "library call: torch.nn.functional.gelu", "memory"),
    "chain": (_finding(), "fusion: torch.compile", "memory"),
    "short chain": (_finding(_operation(kernels=2)), "fusion: torch.compile", "memory"),
    "chain on a CPU": (_finding(step=CPU), "fusion: torch.compile", "memory"),
    "one kernel": (_finding(_operation(kernels=1)), "a custom kernel", "memory"),
    "sync": (_finding(waited=100.0), "leave the synchronize out", "sync"),
    "collective": (_finding(_operation("communication", name="AllReduce")), "overlap", "communication"),
    "data": (_finding(_operation("copy", name="Memcpy HtoD")), "pinned memory", "data"),
    "item": (_finding(_operation("copy", us=5, name="Memcpy DtoH"), waited=100.0), "leave the sync", "sync"),
    "back": (_finding(_operation("copy", name="Memcpy DtoH")), "leave it on the device", "data"),
    "loader": (LOADER, "more loader workers", "data"),
    "python": (_finding(step=PYTHON), "torch.compile, or less Python", "Python on the host"),
    "launch": (_finding(step=HOST_BOUND), "torch.compile, or a CUDA graph", "launch"),
    "one launch": (_finding(_operation(kernels=1), HOST_BOUND), "a CUDA graph of the step", "launch"),
    "optimizer": (_finding(_operation("optimizer", kernels=30)), "fused=True", "memory"),
    "near": (_product(limit=360.0), "nothing", "compute"),
    "float32": (_product(limit=200.0), "TF32 or bfloat16", "compute"),
    "ragged": (_product(limit=200.0, dtype="c10::BFloat16"), "sizes that are multiples of 64", "compute"),
    "product": (_product(limit=200.0, dtype="c10::BFloat16", dims=EVEN), "nothing", "compute"),
    "layer": (_norm(), "a custom kernel", "memory"),
    "compiled": (_finding(_operation("compiled", kernels=1)), "nothing", "memory"),
    "too little": (_norm(us=60.0), "nothing", "memory"),
}


@pytest.mark.parametrize("finding, lever, constraint", CASES.values(), ids=CASES)
def test_rules(finding, lever, constraint):
    row = triage.judged(finding)
    assert row["lever"].startswith(lever) and row["constraint"] == constraint and row["reason"]
    assert 0 <= row["predicted_gain_percent"] <= row["most_gain_percent"]


def test_every_rule_has_a_case():
    met = {next(i for i, rule in enumerate(rules.RULES) if rule.when(f)) for f, _, _ in CASES.values()}
    assert met == set(range(len(rules.RULES)))


def test_a_measured_lever_saves_by_its_ratios_forward_and_backward():
    row = triage.judged(_finding(_operation(us=500, back=200), pattern="gelu", measured=MEASURED))
    assert row["predicted_saving_us"] == pytest.approx(300 * 0.9 + 200 * 0.8)
    assert row["predicted_gain_percent"] == pytest.approx(43.0)
    assert "10.00x forward, 5.00x backward in outputs/" in row["reason"]


def test_a_backward_that_was_not_measured_saves_nothing():
    one = dataclasses.replace(MEASURED, backward=None)
    row = triage.judged(_finding(_operation(us=500, back=200), pattern="gelu", measured=one))
    assert row["predicted_saving_us"] == pytest.approx(270)
    assert "backward not measured" in row["reason"]


def test_the_most_is_amdahls():
    """A share p that became as fast as its roof lets it leaves 1 - p + p * roof of the step."""
    row = triage.judged(_finding(_operation(us=400), limit=40.0))
    assert row["most_gain_percent"] == pytest.approx(100 * (1 - (0.6 + 0.4 * 0.1)))


def test_a_step_never_gets_shorter_than_its_host():
    step = dataclasses.replace(STEP, host_us=900)
    row = triage.judged(_finding(step=step, pattern="gelu", measured=MEASURED))
    assert row["predicted_saving_us"] == 100


def test_a_loader_gains_what_the_device_stands_still_for_it():
    row = triage.judged(LOADER)
    assert (row["predicted_saving_us"], row["where"], row["device_us"]) == (300, "t.py:4", 0)


def test_fewer_launches_never_make_a_step_shorter_than_its_device_works():
    step = dataclasses.replace(HOST_BOUND, busy_us=850)
    row = triage.judged(_finding(_operation(kernels=80), step))
    assert row["constraint"] == "launch" and row["predicted_saving_us"] == 150


def test_a_measured_variant_may_beat_the_roofline_and_then_is_the_most():
    row = triage.judged(_finding(limit=390.0, pattern="gelu", measured=MEASURED))
    assert row["predicted_gain_percent"] == row["most_gain_percent"] == pytest.approx(36.0)


@pytest.mark.parametrize(
    "ops, kind, expected",
    [
        (("mul", "add", "tanh"), "chain", "gelu"),
        (("mul", "add", "erf"), "chain", "gelu"),
        (("exp", "sum", "div"), "chain", "softmax"),
        (("bmm", "exp", "sum", "div"), "attention", "attention"),
        (("mean", "sub", "rsqrt"), "chain", "layer_norm"),
        (("mul", "add"), "chain", ""),
        (("exp", "sum", "log", "mean"), "chain", ""),
        (("mul", "add", "tanh"), "product", ""),
    ],
)
def test_patterns(ops, kind, expected):
    assert rules.pattern_of(_operation(kind, ops=ops)) == expected


def test_shares_of_the_table_add_up():
    rows = triage.table([_finding(_operation(us=us)) for us in (100.0, 600.0, 250.0)])
    assert [round(row["device_us"]) for row in rows] == [600, 250, 100]
    assert rows[-1]["cumulated_percent"] == pytest.approx(100)


def test_the_conclusion_names_the_largest_gain_or_says_nothing_is_worth_it():
    worth = triage.table([_finding(pattern="gelu", measured=MEASURED), _finding(_operation(us=10))])
    assert "gelu variant=tuned" in triage.conclusion(worth, STEP)
    near = triage.table(
        [_finding(_operation("product", kernels=1, ops=("mm",)), limit=380.0, roof="compute")]
    )
    assert triage.conclusion(near, STEP).startswith("nothing here is worth doing")
    assert "waits for the host" in triage.conclusion(near, dataclasses.replace(HOST_BOUND, host_us=800))
    launches = triage.conclusion(triage.table([_finding(_operation(us=150), HOST_BOUND)]), HOST_BOUND)
    assert "waits for the host" in launches and launches.endswith("at most 70 % of the step")
    assert "fewer launches first" in triage.conclusion(near, dataclasses.replace(STEP, host_us=990))


def test_before_and_after_tell_how_far_the_unchanged_moved():
    def line(operation, before, after, predicted):
        names = ("operation", "before_us", "after_us", "saved_us", "predicted_saving_us")
        return dict(zip(names, (operation, before, after, before - after, predicted)))

    rows = [line("gelu", 100e3, 15e3, 80e3), line("attention", 37e3, 117e3, ""), line("add", 5e3, 4e3, "")]
    step = line("step", 545e3, 431e3, 80e3)
    said = before_after.sentence([*rows, step], [])
    assert said[0] == "step: 545 ms before, 431 ms after: 20.9 % saved"
    assert "what was not changed moved by up to 80 ms (attention): a smaller gain may be chance" in said
    assert "predicted: 14.7 % saved (-30 % of what was obtained)" in said
    worse = before_after.sentence([*rows, line("step", 500e3, 600e3, 80e3)], [])
    assert worse[:2] == ["step: 500 ms before, 600 ms after: 20.0 % lost", "predicted: 16.0 % saved"]
    everything = before_after.sentence([line("gelu", 100e3, 15e3, ""), step], [])
    assert not any("chance" in each for each in everything)
