"""The plan is a pure function of the settings: held against a written table."""

from __future__ import annotations

from runner.config.compose import compose
from runner.op import extras
from runner.plan import plan
from runner.record.columns import row_id
from runner.report.progress import title
from tests.support import ROOT

GOLDEN = ROOT / "tests" / "golden" / "plan.txt"

WORDS = [
    [
        "op=gelu",
        "attrs.approximate=all",
        "dtype=[float32,bfloat16]",
        "direction=[forward,backward]",
        "shape.rows=2",
    ],
    ["op=softmax", "shapes=[{rows: 2, cols: 3}, {rows: 0, cols: 8}]", "layout=all", "attrs.dim=[-1,0]"],
    ["op=softmax", "shape.cols=2000000", "op.variants.triton_row.params.num_warps=[4,8]"],
    ["op=cdist", "shape.n=100", "shape.d=3", "attrs.p=[2.0,1.5]"],
    ["op=add", "shape.rows=4", "shape.b_rows=1", "dtype=[float32,bfloat16+float32]"],
]


def table(words: list[str], device: str) -> str:
    settings = compose([*words, "variant=all", "device=cpu", "seed=1"])
    planned = plan(settings.__class__(**{**vars(settings), "device": device}))
    lines = [f"# {' '.join(words)} on {device}"]
    for one in planned.cases:
        case = one.case
        lines.append(
            f"{case.case_id} {title(case)} out={case.out_dtype} grad={','.join(case.grad)} "
            f"flops={case.flops:g} read={case.read_bytes:g} write={case.write_bytes:g}"
        )
        for entry in one.entries:
            params = "".join(f" {k}={v}" for k, v in entry.params.items())
            what = f"skip: {entry.skip}" if entry.skip else "interpreted" if entry.interpreted else "run"
            lines.append(f"  {entry.variant.name}{params} {entry.memory_bytes:g} B: {what}")
    return "\n".join(lines) + "\n"


def golden() -> str:
    return "\n".join(table(words, device) for words in WORDS for device in ("cpu", "cuda:0"))


def test_the_plan_is_the_golden_table():
    """After a wanted change: python -m tests.test_plan"""
    assert golden() == GOLDEN.read_text()


def test_planning_twice_gives_the_same():
    assert table(WORDS[0], "cpu") == table(WORDS[0], "cpu")


def test_case_ids_differ_in_each_thing_that_makes_a_case():
    base = ["op=softmax", "shape.rows=4", "shape.cols=8", "device=cpu"]
    ids = set()
    for extra in [
        [],
        ["shape.rows=5"],
        ["dtype=bfloat16"],
        ["direction=backward"],
        ["layout=transposed"],
        ["attrs.dim=0"],
    ]:
        (only,) = plan(compose([*base, *extra])).cases
        ids.add(only.case.case_id)
    assert len(ids) == 6


def test_row_ids_differ_by_run_variant_and_parameters():
    words = ["op=softmax", "device=cpu", "op.variants.triton_row.params.num_warps=[4,8]"]
    (one,) = plan(compose(words)).cases
    ids = [row_id(run, one.case, entry) for run in ("a", "b") for entry in one.entries]
    assert len(set(ids)) == len(ids)


def test_a_dim_without_a_default_has_no_axis_when_it_is_left_out():
    shapes = "shapes=[{rows: 2, cols: 3}, {outer: 4, rows: 2, cols: 3}]"
    flat, deep = (one.case for one in plan(compose(["op=softmax", "device=cpu", shapes])).cases)
    assert flat.inputs[0].shape == (2, 3) and deep.inputs[0].shape == (4, 2, 3)
    assert flat.shape == {"rows": 2, "cols": 3} and deep.shape == {"outer": 4, "rows": 2, "cols": 3}
    assert deep.read_bytes == 4 * flat.read_bytes == 96


def test_what_is_beside_a_case_is_planned_once_for_all_shapes(monkeypatch):
    found, odd_shape = [], extras.odd_shape
    monkeypatch.setattr(extras, "odd_shape", lambda *given: found.append(odd_shape(*given)) or found[-1])
    words = ["op=softmax", "device=cpu", "shapes=smoke", "direction=[forward,backward]"]
    cases = plan(compose([*words, "attrs.dim=[-1,0]"])).cases
    assert len(cases) == 4 * len({tuple(one.case.shape.items()) for one in cases})
    assert len(found) == 4  # one for each attribute and direction
    for one in cases:
        beside = {(each.attrs["dim"], each.direction) for each in one.extras}
        assert beside == {(one.case.attrs["dim"], one.case.direction)}


if __name__ == "__main__":
    GOLDEN.write_text(golden())
