"""From overrides to `Settings`: what is chosen, and what its defaults are."""

import sys
from pathlib import Path

import numpy
import pytest

from runner.config import choose, devices
from runner.config.compose import CONF, compose
from runner.config.origin import Origin
from runner.model import Refusal
from runner.op.targets import Search
from tests import tiny_op

OPS = sorted(path.stem for path in (CONF / "op").glob("*.yaml"))


@pytest.fixture
def scale(tmp_path):
    """Composes `words` for the small op; `changes` are made to its YAML first."""

    def settings(*words, **changes):
        folder = tiny_op.write(tmp_path, {k.replace("__", "."): v for k, v in changes.items()})
        return compose(["op=scale", "device=cpu", *words], [folder])

    return settings


@pytest.mark.parametrize("op", OPS)
def test_every_op_composes_and_its_targets_exist(op):
    settings = compose([f"op={op}", "device=cpu"])
    assert settings.op.name == op
    assert settings.shapes and settings.smoke
    for variant in settings.op.variants.values():
        assert all(Path(source).is_file() for source in variant.sources)
        assert variant.why, f"{op}: {variant.name} does not say why it is there"


@pytest.mark.parametrize("measure", sorted(path.stem for path in (CONF / "measure").glob("*.yaml")))
def test_every_measure_composes(measure):
    assert compose([f"op={OPS[0]}", "device=cpu", f"measure={measure}"]).measure.max_trials >= 20


def test_defaults(scale):
    settings = scale()
    assert settings.variants == ("naive", "builtin", "quick")
    assert settings.named == ()
    assert settings.dtypes == ("float32",)
    assert settings.directions == ("forward",)
    assert settings.attrs == {"factor": (2.0,), "form": ("plain",)}
    assert settings.layouts == ("contiguous",)
    assert settings.shapes == ({"rows": 8, "cols": 16}, {"rows": 4, "cols": 4})
    assert settings.smoke == ({"rows": 3, "cols": 6},)
    assert settings.mode == "bench"
    assert (settings.measure.trials, settings.measure.timing) == (0, "cold")
    assert settings.limits.start_s == 120
    assert settings.output == str(Path.cwd() / "outputs")
    assert settings.command == ("op=scale", "device=cpu")


@pytest.mark.parametrize(
    ("asked", "run", "named"),
    [
        ("all", ("naive", "builtin", "quick"), ()),
        ("naive", ("naive",), ("naive",)),
        ("[quick,naive]", ("naive", "quick"), ("naive", "quick")),
        ("peer", ("other",), ()),
        ("[all,peer]", ("naive", "builtin", "quick", "other"), ()),
        ("[all,other]", ("naive", "builtin", "quick", "other"), ("other",)),
    ],
)
def test_variants(scale, asked, run, named):
    settings = scale(f"variant={asked}")
    assert (settings.variants, settings.named) == (run, named)


@pytest.mark.parametrize(
    ("words", "shapes"),
    [
        (["shape.rows=5"], [(5, 10)]),  # it gives every dim without a default: the one shape
        (["shape.cols=7"], [(8, 7), (4, 7)]),
        (["shapes=smoke"], [(3, 6)]),
        (["shapes=smoke", "shape.cols=9"], [(3, 9)]),
        (["shapes=cpu", "shape.rows=2"], [(2, 4)]),  # {rows: 2, cols: 4} twice
        (["shapes=[{rows: 1}, {rows: 2, cols: 0}, {rows: 1}]"], [(1, 2), (2, 0)]),
        (["shapes=[{cols: 3}]", "shape.rows=6"], [(6, 3)]),
    ],
)
def test_shapes(scale, words, shapes):
    assert [(each["rows"], each["cols"]) for each in scale(*words).shapes] == shapes


def test_the_shapes_of_a_gpu(scale, monkeypatch):
    monkeypatch.setattr(devices, "driver", lambda: (2, ""))
    monkeypatch.setattr(devices, "torch_obstacle", lambda: "")
    settings = scale("device=cuda:1")
    assert (settings.device, settings.shapes) == ("cuda:1", ({"rows": 64, "cols": 128},))


def test_dtypes_attributes_and_layouts(scale):
    settings = scale("dtype=all", "attrs.factor=all", "attrs.form=fancy", "layout=all")
    assert settings.dtypes == ("float32", "bfloat16")
    assert settings.attrs == {"factor": (2.0, 3.0), "form": ("fancy",)}
    assert settings.layouts == ("contiguous", "transposed")


def test_a_number_need_not_be_a_declared_one_a_word_does(scale):
    factors = scale("attrs.factor=[2,7.5]").attrs["factor"]
    assert factors == (2.0, 7.5) and all(isinstance(each, float) for each in factors)
    with pytest.raises(Refusal, match=r"attrs.form=fancie: .*did you mean 'fancy'"):
        scale("attrs.form=fancie")
    with pytest.raises(Refusal, match=r"attrs.factor=true|attrs.factor=True"):
        scale("attrs.factor=true")
    with pytest.raises(Refusal, match=r"attrs.whole=1.5: a whole number is needed"):
        scale("attrs.whole=1.5", attrs__whole=[1, 2])
    assert scale("attrs.whole=[3,1,3]", attrs__whole=[1, 2]).attrs["whole"] == (3, 1)


def test_backward_needs_a_cost(scale):
    with pytest.raises(Refusal, match=r"no backward; it needs `grad` and `cost.backward`"):
        scale("direction=backward")
    cost = tiny_op.OP["cost"]["forward"]
    settings = scale("direction=[forward,backward]", cost__backward=cost)
    assert settings.directions == ("forward", "backward")


def test_trials_seed_and_baseline_take_the_place_of_defaults(scale):
    settings = scale("trials=3", "seed=11", "baseline=builtin", "measure.warmup=0", "limits.check_s=1.5")
    assert (settings.measure.trials, settings.measure.warmup, settings.seed) == (3, 0, 11)
    assert (settings.op.baseline, settings.limits.check_s) == ("builtin", 1.5)


def test_seeds_differ_and_are_recorded(scale):
    first, second = scale(), scale()
    assert first.seed != second.seed
    assert f"seed: {first.seed}" in first.resolved_yaml


def test_the_resolved_configuration_composes_again(scale, tmp_path):
    import yaml

    settings = scale("shape.rows=5", "attrs.factor=3")
    raw = yaml.safe_load(settings.resolved_yaml)
    again = choose.settings(raw, Origin(Search.beside([tmp_path])))
    assert (again.shapes, again.attrs, again.seed) == (settings.shapes, settings.attrs, settings.seed)


def test_interpolation_and_op_overrides(scale):
    settings = scale("shape.rows=3", "op.variants.quick.params.block=[32]", "shape.cols=${shape.rows}")
    assert settings.op.variants["quick"].params == {"block": (32,)}
    assert settings.shapes == ({"rows": 3, "cols": 3},)


def test_files_for_inputs(scale, tmp_path):
    (tmp_path / "x.pt").write_bytes(b"")
    assert scale(f"inputs.x={tmp_path}/x.pt").files == {"x": str(tmp_path / "x.pt")}


@pytest.fixture
def saved(tmp_path):
    """`inputs.x=` for a .npy file of that shape and dtype."""

    def word(shape, dtype="float32"):
        numpy.save(tmp_path / "x.npy", numpy.zeros(shape, dtype))
        return f"inputs.x={tmp_path}/x.npy"

    return word


def test_a_file_tells_its_dims(scale, saved):
    settings = scale(saved((3, 5)))
    assert settings.shapes == ({"rows": 3, "cols": 5},)
    assert "rows: 3" in settings.resolved_yaml
    assert scale(saved((0, 5))).shapes == ({"rows": 0, "cols": 5},)
    derived = scale(saved((3, 10)), inputs__x__shape=["rows", "cols*1"], dim_defaults__cols="10")
    assert derived.shapes == ({"rows": 3, "cols": 10},)  # only plain dims are read off


def test_a_file_tells_whether_it_has_the_axis_that_may_be_left_out(scale, saved):
    changes = {
        "dims": ["deep", "rows", "cols"],
        "dim_defaults": {"deep": None},
        "inputs__x__shape": ["deep", "rows", "cols"],
        "shapes": {name: [{"rows": 3, "cols": 5}] for name in ("cuda", "cpu", "smoke")},
    }
    assert scale(saved((3, 5)), **changes).shapes == ({"rows": 3, "cols": 5},)
    assert scale(saved((2, 3, 5)), **changes).shapes == ({"deep": 2, "rows": 3, "cols": 5},)
    with pytest.raises(Refusal, match=r"the file is 15, .*: an array of 2 dims is needed$"):
        scale(saved((15,)), "shape.rows=3", "shape.cols=5", **changes)


def test_a_file_that_does_not_fit_names_the_words_to_type(scale, saved):
    with pytest.raises(Refusal, match=r"is 3x5, and rows=4 cols=8 .*4x8: type shape.rows=3 shape.cols=5$"):
        scale(saved((3, 5)), "shape.rows=4")
    with pytest.raises(Refusal, match=r"is 3x5, and rows=3 cols=6 needs 3x6"):
        scale(saved((3, 5)), "shapes=smoke")
    with pytest.raises(Refusal, match=r"is 3, .* an array of 2 dims is needed"):
        scale(saved((3,)), "shape.rows=3")
    assert scale(saved((3, 5)), "shape.rows=3", "shape.cols=5").shapes == ({"rows": 3, "cols": 5},)


def test_the_dtype_of_a_file(scale, saved):
    with pytest.raises(Refusal, match="the file is float64, and float32 is asked for: save it as float32"):
        scale(saved((3, 5), "float64"))
    with pytest.raises(Refusal, match="the file is float64, and float32 is asked for: set dtype=float64"):
        scale(saved((3, 5), "float64"), dtypes=["float32", "float64"])
    with pytest.raises(Refusal, match="byte order"):
        scale(saved((3, 5), ">f4"))
    assert scale(saved((3, 5), "float64"), "dtype=float64", dtypes=["float32", "float64"]).files


def test_a_file_that_is_no_array(scale, tmp_path):
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(Refusal, match=r"x.npy: cannot be read as what numpy.save\(path, array\) writes"):
        scale(f"inputs.x={tmp_path}/x.npy")


def test_two_files_that_disagree(scale, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.zeros((3, 5), "float32"))
    numpy.save(tmp_path / "y.npy", numpy.zeros((4, 5), "float32"))
    words = [f"inputs.{name}={tmp_path}/{name}.npy" for name in "xy"]
    with pytest.raises(Refusal, match="dim rows is 4 in its file and 3 in that of x; they must agree"):
        scale(*words, inputs__y={"shape": ["rows", "cols"]})


def test_a_parameter_may_be_one_value(scale):
    assert scale("op.variants.quick.params.block=8").op.variants["quick"].params == {"block": (8,)}
    settings = scale(variants__quick__params={"block": 64, "stages": [1, 2]})
    assert settings.op.variants["quick"].params == {"block": (64,), "stages": (1, 2)}


def test_composing_runs_and_imports_no_kernel(scale):
    scale()  # its kernel file cannot be imported at all
    assert "scale" not in sys.modules


def test_nothing_is_left_in_the_output_folder(scale, tmp_path):
    (tmp_path / "out").mkdir()
    scale(f"output={tmp_path}/out/deep/er")
    assert list((tmp_path / "out").iterdir()) == []


def test_compose_beside_a_running_hydra(tmp_path):
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    (tmp_path / "outer.yaml").write_text("a: 1")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.2", job_name="outer"):
        before, base = GlobalHydra.instance().hydra, hydra.version.getbase()
        compose([f"op={OPS[0]}", "device=cpu"])
        assert GlobalHydra.instance().hydra is before
        assert hydra.compose("outer").a == 1
        assert hydra.version.getbase() == base and not hydra.version.base_at_least("1.3")


def test_python_refusals_are_sentences(tmp_path):
    with pytest.raises(Refusal, match=r"op=nope: there is no op 'nope'"):
        compose(["op=nope"])
    with pytest.raises(Refusal, match="there is no folder"):
        compose([f"op={OPS[0]}"], [tmp_path / "absent"])
