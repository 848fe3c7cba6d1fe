"""The check has teeth: each kind of wrong output is refused, and right ones pass."""

import math

import pytest
import torch

from runner.check import definition, fingerprint, poison, probes
from runner.check.bounds import bound, tolerance

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def errors(out, expected, dtype=F32, accuracy="elementwise"):
    """The figures; that the check of timed calls, which wants none, says the same is asked beside it."""
    wanted = definition.Expected(torch.as_tensor(expected, dtype=torch.float64), dtype)
    rule = bound(dtype, accuracy)
    found = definition.compare(out, wanted, rule)
    assert bool(definition.compare(out, wanted, rule, full=False).reason) == bool(found.reason)
    return found


def test_the_reference_rounded_to_the_dtype_passes_with_half_an_ulp():
    expected = torch.randn(10_000, dtype=torch.float64)
    for dtype in (F32, BF16, F16):
        found = errors(expected.to(dtype), expected, dtype)
        assert found.reason == ""
        assert 0.4 < found.max_ulp < 0.501  # float64 to float16 rounds twice


def test_figures_of_a_known_error():
    found = errors(torch.tensor([1.0, 2.0, 4.0]), [1.0, 2.0, 4.000001])
    assert found.max_abs_err == pytest.approx(1e-6, rel=1e-6)
    assert found.max_rel_err == pytest.approx(2.5e-7, rel=1e-6)
    assert found.norm_rel_err == pytest.approx(1e-6 / math.sqrt(21), rel=1e-5)
    assert found.max_ulp == pytest.approx(1e-6 / 2**-21, rel=1e-5)


EXPECTED = torch.softmax(torch.randn(8, 4096, dtype=torch.float64), -1)


@pytest.mark.parametrize(
    "name",
    [
        "zeros",
        "constant",
        "input",
        "one element",
        "swapped pair",
        "nan",
        "bfloat16 accuracy",
        "tf32 accuracy",
    ],
)
def test_wrong_values_are_refused(name):
    right = EXPECTED.float()
    wrong = right.clone()
    if name == "zeros":
        wrong.zero_()
    elif name == "constant":
        wrong.fill_(1 / 4096)
    elif name == "input":
        wrong = torch.randn_like(right)
    elif name == "one element":
        wrong[3, 77] *= 1.001
        wrong[3, 77] += right.max() / 100
    elif name == "swapped pair":
        wrong[0, [0, 1]] = right[0, [1, 0]]
    elif name == "nan":
        wrong.fill_(math.nan)
    elif name == "bfloat16 accuracy":
        wrong = right.bfloat16().float()
    else:
        wrong = (right.view(torch.int32) & ~0x1FFF).view(F32)
    assert errors(right, EXPECTED).reason == ""
    assert errors(wrong, EXPECTED).reason != ""


def test_zeros_are_refused_where_all_right_values_are_tiny():
    expected = torch.full((393216,), 4e-6, dtype=torch.float64)
    assert "elements" in errors(torch.zeros(393216), expected).reason


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (None, "NoneType"),
        ([torch.zeros(2)], "list"),
        (torch.nn.Parameter(torch.zeros(2)), "Parameter"),
        (torch.zeros(3), r"shape \(3,\)"),
        (torch.zeros(0), r"shape \(0,\)"),
        (torch.zeros(2, dtype=torch.float64), "float64"),
        (torch.zeros(2, device="meta"), "meta"),
        (torch.zeros(2).to_sparse(), "torch.sparse_coo"),
        (torch.zeros(1).expand(2), "share memory"),
        (torch.imag(torch.zeros(2, dtype=torch.complex64).conj()), "negated"),
    ],
)
def test_anything_but_the_right_kind_of_tensor_is_refused(out, words):
    with pytest.raises(AssertionError, match=words):
        assert definition.kind_fault(out, (2,), F32, "cpu") == ""


def test_non_finite_values_must_stand_where_the_reference_has_them():
    expected = [math.nan, math.inf, -math.inf, 1.0]
    assert errors(torch.tensor(expected), expected).reason == ""
    for at, value in [(0, 0.0), (1, math.nan), (1, -math.inf), (2, 3e38), (3, math.nan), (3, math.inf)]:
        out = torch.tensor(expected)
        out[at] = value
        assert f"at [{at}]" in errors(out, expected).reason


def test_overflow_of_the_dtype_is_expected_where_the_reference_overflows():
    assert errors(torch.tensor([math.inf], dtype=F16), [70000.0], F16).reason == ""
    assert errors(torch.tensor([65504.0], dtype=F16), [70000.0], F16).reason != ""


@pytest.mark.parametrize("accuracy", ["elementwise", "normwise"])
@pytest.mark.parametrize("dtype", [F32, torch.bfloat16, torch.float16])
def test_where_the_right_values_underflow_zero_is_right_and_more_is_not(dtype, accuracy):
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    right = torch.full((5,), -smallest / 3, dtype=torch.float64)
    assert not errors(right.to(dtype), right, dtype, accuracy).reason
    assert errors(torch.full((5,), 2 * smallest).to(dtype), right, dtype, accuracy).reason


def test_integers_must_be_exact():
    assert errors(torch.tensor([1, 2]), [1.0, 2.0], torch.int64).reason == ""
    assert errors(torch.tensor([1, 3]), [1.0, 2.0], torch.int64).reason != ""


def test_normwise_forgives_one_element_but_not_the_norm():
    expected = torch.ones(1000, dtype=torch.float64)
    expected[0] = 1e-5
    out = expected.float()
    out[0] = 3e-5
    assert errors(out, expected).reason != ""
    assert errors(out, expected, accuracy="normwise").reason == ""
    assert "norm-relative" in errors(out * 1.001, expected, accuracy="normwise").reason
    many = torch.ones(1 << 22, dtype=torch.float64)
    out = many.float()
    out[7] = 0.995  # in the norm this is nothing
    assert "1 elements" in errors(out, many, accuracy="normwise").reason


def through(x, bits):
    """A matrix product of float32 as a unit that keeps so many bits of the mantissa makes it."""
    mask = ~((1 << (23 - bits)) - 1)
    return (x.view(torch.int32) & mask).view(F32)


@pytest.mark.parametrize(("unit", "bits"), [("tf32", 10), ("bf16", 7)])
def test_coarse_arithmetic_is_refused_unless_it_is_declared(unit, bits):
    a, b = torch.randn(64, 128), torch.randn(128, 64)
    wanted = definition.Expected(a.double() @ b.double(), F32)
    honest, coarse = a @ b, through(a, bits) @ through(b, bits)
    for accuracy in ("elementwise", "normwise"):
        assert definition.compare(honest, wanted, bound(F32, accuracy)).reason == ""
        assert definition.compare(coarse, wanted, bound(F32, accuracy)).reason != ""
        assert definition.compare(coarse, wanted, bound(F32, accuracy, unit)).reason == ""
    assert tolerance(torch.float64, unit) == tolerance(torch.float64)


def test_an_error_over_four_times_the_built_ins_is_refused_within_the_bound_of_the_dtype():
    wanted = definition.Expected(torch.randn(1000, dtype=torch.float64), F32)
    eps = torch.finfo(F32).eps
    off = (wanted.values + 20 * eps * (wanted.values.abs() + wanted.rms)).float()
    assert definition.compare(off, wanted, bound(F32)).reason == ""
    own = float((off - wanted.values).norm() / wanted.norm)
    assert 20 * eps < own < 40 * eps
    reason = definition.compare(off, wanted, bound(F32, builtin=own / 4.1)).reason
    assert "is over 4 times the built-in's own error" in reason
    assert definition.compare(off, wanted, bound(F32, builtin=own / 3.9)).reason == ""
    assert bound(F32, builtin=0.0).norm == 8 * eps  # nobody is refused for another order of summation
    assert bound(F32, builtin=0.0).element == bound(F32, builtin=1.0).element == tolerance(F32)
    assert bound(torch.int64, builtin=0.0).element == 0


def test_the_largest_error_among_many_is_no_error_over_the_built_ins():
    wanted = definition.Expected(torch.randn(1000, dtype=torch.float64), F32)
    eps = torch.finfo(F32).eps
    off = wanted.values.float()
    off[3] += 20 * eps * (off[3].abs() + wanted.rms)
    assert definition.compare(off, wanted, bound(F32, builtin=0.3 * eps)).reason == ""
    off[3] += 20 * eps * (off[3].abs() + wanted.rms)
    reason = definition.compare(off, wanted, bound(F32, builtin=0.3 * eps)).reason
    assert "1 elements (0.1 %) beyond the float32 bound; the worst at [3]" in reason


@pytest.mark.parametrize(("dtype", "count"), [(BF16, 17), (F16, 200)])
def test_a_whole_number_does_not_pass_for_its_neighbour(dtype, count):
    counts = torch.tensor([count, count, count, count - 1] * 8, dtype=torch.float64)
    wanted = definition.Expected(counts, dtype)
    rule = bound(dtype, apart=wanted.apart)
    off = counts.clone()
    off[3] += 1
    assert (
        definition.compare(off.to(dtype), wanted, bound(dtype)).reason == ""
    )  # 16 bits alone would let it pass
    assert "half of what whole numbers lie apart" in definition.compare(off.to(dtype), wanted, rule).reason
    off[3] -= 0.75  # rounded steps may miss it by less than a half
    assert definition.compare(off.to(dtype), wanted, rule).reason == ""
    assert probes.probe([wanted], [rule], []).degenerate == ""


@pytest.mark.parametrize(
    "values",
    [[16.0, 17.5], [1001.0, 3.0], [0.0, 0.0], [math.nan, 16.5]],
    ids=["half", "coarse", "zero", "nan"],
)
def test_the_rule_of_whole_numbers_is_for_those_that_the_dtype_tells_apart(values):
    assert definition.Expected(torch.tensor(values, dtype=torch.float64), BF16).apart == math.inf


def test_whole_numbers_are_never_allowed_more():
    wanted = definition.Expected(torch.arange(1.0, 9.0, dtype=torch.float64), F32)
    assert bound(F32, apart=wanted.apart) == bound(F32)
    assert bound(F32, "normwise", apart=0.0) == bound(F32, "normwise")


def test_at_the_edge_of_overflow_either_answer_is_right():
    wanted = definition.Expected(torch.tensor([65519.0, 65521.0, 1.0], dtype=torch.float64), F16)
    rule = bound(F16)
    for values in ([65504.0, math.inf, 1.0], [math.inf, 65504.0, 1.0]):
        assert definition.compare(torch.tensor(values, dtype=F16), wanted, rule).reason == ""
    for values in ([-math.inf, math.inf, 1.0], [65504.0, math.nan, 1.0], [6e4, math.inf, math.inf]):
        assert definition.compare(torch.tensor(values, dtype=F16), wanted, rule).reason != ""


def probed(values, dtype=F32, inputs=(), accuracy="elementwise"):
    wanted = definition.Expected(torch.as_tensor(values).double(), dtype)
    return probes.probe([wanted], [bound(dtype, accuracy)], inputs)


@pytest.mark.parametrize("accuracy", ["elementwise", "normwise"])
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_the_check_of_an_ordinary_case_has_teeth(dtype, accuracy):
    x = torch.randn(40, 50)
    assert probed(torch.tanh(x), dtype, [x], accuracy) == probes.Found("", 7)


@pytest.mark.parametrize(
    ("values", "inputs", "name"),
    [
        (torch.full((100,), 3.0) + 1e-7 * torch.arange(100), [], "a constant"),
        (torch.arange(1.0, 101), [torch.arange(1.0, 101) * (1 + 1e-7)], "an input"),
    ],
)
def test_a_case_that_cannot_tell_right_from_wrong_is_degenerate(values, inputs, name):
    assert probed(values, inputs=inputs).degenerate == name


@pytest.mark.parametrize(
    "values", [torch.ones(30, 1), torch.zeros(20), torch.tensor([0.5]), torch.tensor([2.0, 2.0])]
)
def test_what_is_right_by_chance_is_no_wrong_output(values):
    found = probed(values, inputs=[values.clone()])
    assert found.degenerate == "" and found.asked > 0


def test_an_empty_output_has_nothing_to_tell_apart():
    assert probed(torch.zeros(0, 8)) == probes.Found("", 0)


def test_empty_outputs_compare():
    assert errors(torch.zeros(0, 8), torch.zeros(0, 8)).reason == ""


def test_pieces_add_up(monkeypatch):
    expected = torch.randn(1000, dtype=torch.float64)
    out = expected.float()
    out[901] += 1.0
    whole = errors(out, expected)
    monkeypatch.setattr(definition, "_CHUNKS", {"cpu": 64})
    pieces = errors(out, expected)
    assert "at [901]" in pieces.reason
    assert pieces.max_abs_err == whole.max_abs_err


def test_a_change_of_an_input_is_seen_even_of_a_nan():
    x = torch.tensor([1.0, math.nan])
    before = fingerprint.fingerprints([x])
    assert fingerprint.changed(before, fingerprint.fingerprints([x])) == []
    x[1] = 2.0
    assert fingerprint.changed(before, fingerprint.fingerprints([x])) == [0]


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1001])
@pytest.mark.parametrize("dtype", [F32, BF16, torch.int8])
def test_swapped_elements_and_a_write_beside_an_input_are_changes(size, dtype):
    storage = torch.arange(2 * size + 2).to(dtype)
    x = storage[1:-1:2]  # between elements that are not its own
    before = fingerprint.fingerprints([x])
    beside = storage.clone()
    storage[2] += 1
    assert fingerprint.changed(before, fingerprint.fingerprints([x])) == [0]
    storage.copy_(beside)
    assert fingerprint.changed(before, fingerprint.fingerprints([x])) == []
    if size > 1:
        x[[0, -1]] = x[[-1, 0]] if bool(x[0] != x[-1]) else x[[0, -1]] + 1
        assert fingerprint.changed(before, fingerprint.fingerprints([x])) == [0]


def test_another_tensor_in_an_inputs_place_is_a_change():
    x = torch.arange(6.0)
    before = fingerprint.fingerprints([x])
    assert fingerprint.changed(before, fingerprint.fingerprints([x.clone()])) == [0]
    assert fingerprint.changed(before, fingerprint.fingerprints([x.view(2, 3)])) == [0]


def test_the_reference_of_a_gradient_is_autograd_in_float64():
    x = torch.randn(5)
    expected, upstream = definition.reference(torch.tanh, [x], {}, [0], lambda out: torch.ones(5))
    assert expected[0].dtype is torch.float64
    assert torch.allclose(expected[0], 1 - torch.tanh(x.double()) ** 2)
    assert upstream.shape == (5,)


@pytest.mark.parametrize("numel", [16, 1 << 14, 1 << 22])
def test_memory_that_a_call_does_not_write_holds_nothing_right(numel):
    torch.full((numel,), 7.0)  # freed: what a variant that writes nothing would return
    with poison.poisoned([4 * numel], "cpu"):
        stale = torch.empty(numel)
    assert bool((stale.isnan() | (stale.abs() > 1e38)).all())


@pytest.mark.gpu
def test_free_cuda_memory_is_poisoned():
    torch.full((1 << 20,), 7.0, device="cuda")
    with poison.poisoned([4 << 20], "cuda:0"):
        assert bool(torch.empty(1 << 20, device="cuda").isnan().all())
