"""A trace read into operators, launches and kernels: nesting, lines, phases, the backward's places, bytes."""

from __future__ import annotations

import gzip
import json

import pytest

from runner.trace import reading
from tests.synthetic_trace import Made


def test_operators_nest_by_time_and_know_their_own_time():
    made = Made().window("call 0", 0, 100).op("aten::linear", 10, 50).op("aten::addmm", 20, 30)
    outer, inner = made.trace().ops
    assert inner.parent is outer and outer.parent is None
    assert (outer.self_us, inner.self_us) == (20, 30)


def test_an_operator_has_the_innermost_line_around_it():
    made = Made().window("call 0", 0, 100).line("a.py:1 f", 0, 90).line("a.py:1 f > b.py:7 g", 10, 30)
    made.op("aten::mul", 20, 5).op("aten::add", 50, 5)
    assert [op.label for op in made.trace().ops] == ["a.py:1 f > b.py:7 g", "a.py:1 f"]


def test_phases_are_those_of_the_marks_that_torch_sets():
    made = Made().window("step 0", 0, 100).op("aten::mm", 1, 5)
    made.mark("Optimizer.step#AdamW.step", 20, 20).op("aten::_foreach_add_", 25, 5)
    made.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50, 20).op("aten::stack", 55, 5)
    made.op("autograd::engine::evaluate_function: MmBackward0", 80, 10, sequence=4).op("aten::mm", 82, 5)
    assert [op.phase for op in made.trace().ops] == ["forward", "optimizer", "data", "backward", "backward"]


def test_a_backward_in_another_thread_has_its_forwards_line():
    made = Made().window("step 0", 0, 200).line("model.py:3 forward", 0, 50)
    made.op("aten::linear", 5, 30, sequence=9).op("aten::t", 6, 5, sequence=9).op(
        "aten::addmm", 20, 10, sequence=10
    )
    made.op("autograd::engine::evaluate_function: AddmmBackward0", 100, 40, sequence=10, tid=2)
    made.op("aten::mm", 110, 20, tid=2).kernel("gemm", 130, 30, host=(115, 3), tid=2)
    read = made.trace()
    node = next(op for op in read.ops if op.name.startswith("autograd"))
    assert node.forward.name == "aten::addmm" and read.ops[-1].label == "model.py:3 forward"
    (activity,) = read.activities
    assert (activity.launch.phase, activity.launch.label) == ("backward", "model.py:3 forward")
    assert activity.window == "step 0"


def test_of_operators_with_one_number_the_outermost_made_the_node():
    made = Made().op("aten::linear", 0, 30, sequence=9).op("aten::t", 6, 5, sequence=9)
    made.op("autograd::engine::evaluate_function: LinearBackward0", 50, 10, sequence=9)
    assert made.trace().ops[-1].forward.name == "aten::linear"


def test_bytes_are_those_of_arguments_and_allocations():
    made = Made().op("aten::mul", 0, 10, shapes=[(4, 8), (4, 8)], dtype="c10::BFloat16").memory(64, 5)
    made.op("aten::mul_", 20, 10, shapes=[(4, 8), (4, 8)]).memory(999, 40)
    into_new, in_place = made.trace().ops
    assert (into_new.read_bytes, into_new.written_bytes) == (128, 64)
    assert (in_place.read_bytes, in_place.written_bytes) == (256, 128)


def test_a_copy_does_not_read_what_it_overwrites():
    op = Made().op("aten::copy_", 0, 10, shapes=[(4, 8), (4, 8)]).trace().ops[0]
    assert (op.read_bytes, op.written_bytes) == (128, 128)


def test_an_expanded_dim_counts_once():
    made = Made()
    args = {"Input Dims": [[4, 8]], "Input type": ["float"], "Input Strides": [[0, 1]]}
    made.add("cpu_op", "aten::mul", 0, 10, **args)
    assert made.trace().ops[0].read_bytes == 8 * 4


def test_lists_of_tensors_count_each_in_the_commonest_dtype():
    args = {"Input Dims": [[[4], [2, 3]], []], "Input type": ["TensorList", "Scalar"]}
    args |= {"Input Strides": [[[1], [3, 1]], []]}
    made = Made().op("aten::mul", 0, 5, shapes=[(7, 7)], dtype="c10::BFloat16")
    op = made.add("cpu_op", "aten::_foreach_mul_", 10, 10, **args).trace().ops[1]
    assert (op.read_bytes, op.written_bytes) == (20, 20)


def test_a_kernel_without_its_launch_is_counted():
    made = Made().kernel("k", 10, 5, host=(0, 1)).add("kernel", "lost", 20, 5, tid=7, correlation=99)
    assert made.trace().dropped == 1


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_files_are_read_with_and_without_gzip(tmp_path, name):
    data = json.dumps({"traceEvents": Made().op("aten::mul", 0, 1).events}).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert [op.name for op in reading.read(reading.load(tmp_path / name)).ops] == ["aten::mul"]


def test_a_generated_kernel_writes_its_last_argument():
    made = Made().window("call 0", 0, 100)
    shapes = {"Input Dims": [[8], [8], []], "Input type": ["float", "float", "Scalar"]}
    made.add("cpu_op", "triton_poi_fused_gelu_0", 10, 30, kernel_backend="triton", **shapes)
    (op,) = made.trace().ops
    assert (op.read_bytes, op.written_bytes) == (32, 32)
