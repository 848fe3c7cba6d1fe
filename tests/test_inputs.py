"""Inputs: a seed repeats them, layouts are what they are called, files are taken as they are."""

from __future__ import annotations

import numpy
import pytest
import torch

from runner.build import inputs
from runner.config.compose import compose
from runner.model import Refusal
from runner.plan import plan


def case(*words: str):
    return plan(compose(["op=softmax", "device=cpu", "shape.rows=4", "shape.cols=6", *words])).cases[0].case


def test_a_seed_repeats_and_another_does_not():
    (first,), (again,), (other,) = (inputs.make_inputs(case(), seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_two_inputs_of_one_shape_differ():
    both = plan(compose(["op=add", "device=cpu", "shape.rows=4", "shape.cols=4"])).cases[0].case
    a, b = inputs.make_inputs(both, 1)
    assert not torch.equal(a, b)


def test_a_16_bit_input_is_drawn_in_its_own_type():
    (x,) = inputs.make_inputs(case("dtype=bfloat16"), 1)
    assert x.dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("layout", "stride", "offset", "contiguous"),
    [
        ("contiguous", (6, 1), 0, True),
        ("transposed", (1, 4), 0, False),
        ("offset1", (6, 1), 1, True),
    ],
)
def test_layouts(layout, stride, offset, contiguous):
    (x,) = inputs.make_inputs(case(f"layout={layout}"), 1)
    assert x.shape == (4, 6)
    found = (x.stride(), x.storage_offset(), x.is_contiguous())
    assert found == (stride, offset, contiguous)


def test_strided_takes_every_second_element():
    strided = plan(compose(["op=gelu", "device=cpu", "layout=strided", "shape.rows=4", "shape.cols=6"]))
    (x,) = inputs.make_inputs(strided.cases[0].case, 1)
    assert (x.shape, x.stride()) == ((4, 6), (12, 2))


@pytest.mark.parametrize("name", ["x.npy", "x.pt"])
def test_an_input_comes_from_a_file_in_the_cases_layout(tmp_path, name):
    values = torch.arange(24.0).reshape(4, 6)
    path = tmp_path / name
    if name.endswith("npy"):
        numpy.save(path, values.numpy())
    else:
        torch.save(values, path)
    (x,) = inputs.make_inputs(case(f"inputs.x={path}", "layout=transposed"), 1)
    assert torch.equal(x, values)
    assert x.stride() == (1, 4)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (torch.zeros(4, 7), "is 4x7, and rows=4 cols=6 needs 4x6: set shape"),
        (torch.zeros(4, 6, dtype=torch.float64), "is float64, and the case is float32: set dtype=float64"),
        ({"x": torch.zeros(4, 6)}, "holds a dict, not one tensor"),
        (b"not a tensor at all", "cannot be read as what torch.save"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_words(tmp_path, content, words):
    path = tmp_path / "x.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(Refusal, match=words):
        inputs.make_inputs(case(f"inputs.x={path}"), 1)


def test_the_interpreters_smoke_shapes_do_not_take_the_file(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.zeros(4, 6), path)
    words = ["op=softmax", "device=cpu", "shape.rows=4", "shape.cols=6", f"inputs.x={path}"]
    (planned,) = plan(compose(words)).cases
    assert planned.case.inputs[0].file
    assert planned.smoke
    assert not any(small.inputs[0].file for small in planned.smoke)
