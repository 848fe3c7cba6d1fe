"""Units of a step grouped as a person would: functions, layers by line, chains; with what they must move."""

from __future__ import annotations

import pytest

from runner.trace import costs, operations, operators
from tests.synthetic_trace import Made

STEP = "t.py:9 step > m.py:5 forward"
N = 1000
SHAPE = [(10, 100)]
BYTES = 4 * N


def _gelu(made: Made, at: float) -> Made:
    """Five kernels of a naive GeLU in a function of its own, a hundred microseconds each."""
    names = ("mul", "mul", "add", "tanh", "mul")
    made.line(f"{STEP} > naive.py:2 gelu", at, 500)
    for i, name in enumerate(names):
        made.op(f"aten::{name}", at + 10 * i, 8, shapes=SHAPE * 2, sequence=100 + i).memory(
            BYTES, at + 10 * i + 1
        )
        made.kernel(f"{name}_kernel", 1000 + at + 100 * i, 100, host=(at + 10 * i + 2, 2))
    return made


def _linear(made: Made, at: float, line: int = 5) -> Made:
    made.line(f"t.py:9 step > m.py:{line} forward", at, 90).op("aten::linear", at + 1, 50, sequence=50)
    made.op("aten::addmm", at + 2, 20, shapes=[(8,), (32, 16), (16, 8)], sequence=51).memory(
        32 * 8 * 4, at + 4
    )
    return made.kernel("gemm", 1000 + at, 300, host=(at + 5, 3))


def _grouped(made: Made, on_gpu: bool = True):
    read = made.trace()
    some, note = operators.units(read, read, ["step 0"], "step 0", on_gpu)
    assert note == ""
    return operations.grouped(some), some


def test_every_unit_is_in_one_operation_and_shares_add_up():
    made = _linear(_gelu(Made().window("step 0", 0, 5000), 100), 1000)
    found, some = _grouped(made)
    assert sum(each.us for each in found) == sum(unit.us for unit in some) == 800
    assert len([u for each in found for one in each.instances for u in one.units]) == len(some) == 6


def test_a_function_that_computes_is_one_operation():
    found, _ = _grouped(_linear(_gelu(Made().window("step 0", 0, 5000), 100), 1000))
    gelu, linear = found
    assert (gelu.name, gelu.where, gelu.kind, gelu.kernels) == ("gelu", "naive.py", "chain", 5)
    assert (linear.name, linear.where, linear.kind, linear.us) == ("linear", "m.py:5", "product", 300)


def test_a_chain_must_move_its_first_input_and_last_output_only():
    gelu = _grouped(_gelu(Made().window("step 0", 0, 5000), 100))[0][0]
    assert gelu.moved_bytes == 5 * 3 * BYTES
    assert gelu.least() == [(BYTES, BYTES, 5 * N)]


def test_an_operator_alone_moves_what_its_shapes_say():
    made = Made().window("step 0", 0, 5000).line("t.py:3 step", 0, 90).op("aten::add", 5, 9, shapes=SHAPE * 2)
    (add,) = _grouped(made.memory(BYTES, 7).kernel("add", 1000, 50, host=(6, 2)))[0]
    assert add.least() == [(2 * BYTES, BYTES, N)]


def test_a_products_flops_are_exact():
    (linear,) = _grouped(_linear(Made().window("step 0", 0, 5000), 100))[0]
    assert linear.flops == 2 * 32 * 16 * 8


def test_layers_are_told_apart_by_their_line():
    made = _linear(_linear(Made().window("step 0", 0, 5000), 100, line=5), 1000, line=8)
    assert [each.where for each in _grouped(made)[0]] == ["m.py:5", "m.py:8"]


def test_the_backward_belongs_to_its_forward():
    made = _gelu(Made().window("step 0", 0, 5000), 100)
    node = "autograd::engine::evaluate_function: TanhBackward0"
    made.op(node, 2000, 50, sequence=103, tid=2).op("aten::tanh_backward", 2010, 20, shapes=SHAPE * 2, tid=2)
    made.kernel("tanh_backward_kernel", 2100, 40, host=(2015, 2), tid=2)
    (gelu,) = _grouped(made)[0]
    assert (gelu.phase_us("forward"), gelu.phase_us("backward")) == (500, 40)
    assert [one.backward for one in gelu.instances] == [False, True]


def test_elementwise_lines_of_a_layered_function_are_one_chain():
    made = _linear(Made().window("step 0", 0, 5000), 100, line=5)
    for i, line in enumerate((6, 7)):
        made.line(f"t.py:9 step > m.py:{line} forward", 400 + 50 * i, 40)
        made.op("aten::mul" if i else "aten::add", 410 + 50 * i, 9, shapes=SHAPE)
        made.kernel("k", 2000 + 100 * i, 50, host=(411 + 50 * i, 2))
    chain = next(each for each in _grouped(made)[0] if each.kind == "chain")
    assert (chain.name, chain.where, chain.kernels) == ("elementwise in forward", "m.py:6", 2)


def test_a_flat_script_is_looked_at_line_by_line():
    made = Made().window("step 0", 0, 5000)
    for i, name in enumerate(("mul", "exp")):
        made.line(f"t.py:{3 + i} step", 100 * i, 90).op(f"aten::{name}", 100 * i + 5, 9, shapes=SHAPE)
        made.kernel(name, 1000 + 100 * i, 50, host=(100 * i + 6, 2))
    (chain,) = _grouped(made)[0]
    assert (chain.where, chain.kind) == ("t.py:3", "chain")


def test_on_the_cpu_time_is_that_of_operators_themselves():
    made = Made().window("step 0", 0, 100).line("t.py:3 step", 0, 90)
    made.op("aten::linear", 10, 50).op("aten::addmm", 15, 40, shapes=[(8,), (32, 16), (16, 8)])
    (linear,) = _grouped(made, on_gpu=False)[0]
    assert (linear.us, linear.name, linear.kernels) == (50, "linear", 0)


def test_times_are_those_of_the_plain_pass():
    def made(us: float) -> Made:
        return Made().window("step 0", 0, 500).op("aten::exp", 5, 20).kernel("exp", 100, us, host=(6, 2))

    some, _ = operators.units(made(30).trace(), made(90).trace(), ["step 0"], "step 0", True)
    assert [unit.us for unit in some] == [30]


def test_passes_that_ran_other_kernels_say_so():
    one = Made().window("step 0", 0, 500).op("aten::exp", 5, 20).kernel("exp", 100, 30, host=(6, 2)).trace()
    other = Made().window("step 0", 0, 500).op("aten::log", 5, 20).kernel("log", 100, 30, host=(6, 2)).trace()
    some, note = operators.units(one, other, ["step 0"], "step 0", True)
    assert [unit.name for unit in some] == ["exp"] and "other kernels" in note


@pytest.mark.parametrize(
    "name, shapes, expected",
    [
        ("aten::mm", [(3, 5), (5, 7)], 2 * 3 * 5 * 7),
        ("aten::bmm", [(2, 3, 5), (2, 5, 7)], 2 * 2 * 3 * 5 * 7),
        ("aten::_scaled_dot_product_flash_attention", [(2, 4, 8, 16)] * 3, 4 * 2 * 4 * 8 * 8 * 16),
        ("aten::_cudnn_attention_forward", [(2, 4, 8, 16)] * 3, 4 * 2 * 4 * 8 * 8 * 16),
        ("aten::_flash_attention_forward", [(2, 8, 4, 16)] * 3, 4 * 2 * 4 * 8 * 8 * 16),
        ("aten::exp", [(3, 5)], 15),
    ],
)
def test_flops(name, shapes, expected):
    assert costs.flops(Made().op(name, 0, 1, shapes=shapes).trace().ops[0]) == expected


def test_operator_shares_add_up_to_100():
    made = _linear(_gelu(Made().window("step 0", 0, 5000), 100), 1000)
    read = made.trace()
    some, _ = operators.units(read, read, ["step 0"], "step 0", True)
    for rows in (operators.operator_rows(read, ["step 0"], some), operators.kernel_rows(some)):
        assert sum(row["share_percent"] for row in rows) == pytest.approx(100)
        assert rows[-1]["cumulated_percent"] == pytest.approx(100)
        assert sum(row["device_us"] for row in rows) == pytest.approx(800)
