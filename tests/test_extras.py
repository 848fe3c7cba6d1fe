"""What variants are checked on beside their case: chosen by the plan, and drawn as declared."""

import dataclasses

import pytest
import torch

from runner.build import inputs
from runner.config.compose import compose
from runner.plan import plan


def planned(*words, accepts=None):
    """The one case of a run; `accepts` takes the place of what gelu's C++ form accepts."""
    settings = compose(["device=cpu", *words])
    if accepts is not None:
        cpp = dataclasses.replace(settings.op.variants["cpp"], accepts=accepts)
        op = dataclasses.replace(settings.op, variants=settings.op.variants | {"cpp": cpp})
        settings = dataclasses.replace(settings, op=op)
    (found,) = plan(settings).cases
    return found


def wheres(found, variant):
    (entry,) = (e for e in found.entries if e.variant.name == variant)
    return [found.extras[i].where for i in entry.extras]


def test_each_kind_of_values_once_in_changing_layouts():
    assert wheres(planned("op=gelu"), "naive") == [
        "rows=5 cols=205",
        "scale 10000, rows=5 cols=205, transposed",
        "scale 0.0001, rows=5 cols=205, offset1",
        "infinities, rows=5 cols=205, strided",
    ]


def test_what_a_variant_does_not_accept_is_asked_in_the_common_layout():
    found = wheres(planned("op=gelu", accepts="layout != 'offset1'"), "cpp")
    assert "scale 0.0001, rows=5 cols=205" in found and len(found) == 4
    assert wheres(planned("op=gelu", accepts="rows > 100"), "cpp") == []


def test_a_compiled_form_keeps_its_shape():
    assert wheres(planned("op=gelu"), "compile") == ["scale 10000", "scale 0.0001", "infinities"]


def test_forms_that_cancel_and_gradients_are_not_asked_where_they_cannot_answer():
    found = planned("op=cdist")
    assert not any("infinities" in where for where in wheres(found, "naive_mm"))
    assert any("infinities" in where for where in wheres(found, "naive"))
    backward = wheres(planned("op=softmax", "direction=backward"), "naive")
    assert not any("10000" in where or "infinities" in where for where in backward)
    assert any("0.0001" in where for where in backward)


def test_the_values_are_as_declared():
    by_where = {case.where: case for case in planned("op=gelu").extras}
    sizes = {}
    for where, case in by_where.items():
        (x,) = inputs.make_inputs(case, 1)
        kind = where.split(",")[0]
        sizes[kind] = x[x.isfinite()].std().item() if "rows" in where or "scale" in kind else 1.0
        assert x.isnan().any() == x.isinf().any() == ("infinities" in where)
    assert sizes["scale 10000"] == pytest.approx(1e4, rel=0.2)
    assert sizes["scale 0.0001"] == pytest.approx(1e-4, rel=0.2)
    case = by_where["scale 0.0001, rows=5 cols=205, offset1"]
    assert inputs.make_inputs(case, 1)[0].storage_offset() == 1


def test_new_values_go_into_the_same_memory_and_are_those_of_their_seed():
    for layout in ("contiguous", "transposed", "offset1", "strided"):
        case = planned("op=gelu", f"layout={layout}", "shape.rows=6", "shape.cols=7").case
        x = inputs.make_inputs(case, 1)
        address = x[0].data_ptr()
        again = inputs.make_inputs(case, 2, x)
        assert again[0].data_ptr() == address
        assert torch.equal(again[0], inputs.make_inputs(case, 2)[0])


def test_the_built_in_is_what_the_judge_can_call():
    assert planned("op=gelu").case.builtin.name == "builtin"
    assert planned("op=cdist").case.builtin.name == "builtin"
    assert planned("op=cdist", "dtype=bfloat16").case.builtin is None
    assert planned("op=gelu", "op.variants.builtin.target=kernels.gelu.naive.gelu").case.builtin is None
