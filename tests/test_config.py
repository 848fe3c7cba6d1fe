"""From overrides to `Settings`: what is chosen, and what its defaults are."""

import sys
from pathlib import Path

import pytest

from runner import choose, devices
from runner.config import CONF, compose
from runner.model import Refusal
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
    again = choose.settings(raw, choose.Origin(choose.Search.beside([tmp_path])))
    assert (again.shapes, again.attrs, again.seed) == (settings.shapes, settings.attrs, settings.seed)


def test_interpolation_and_op_overrides(scale):
    settings = scale("shape.rows=3", "op.variants.quick.params.block=[32]", "shape.cols=${shape.rows}")
    assert settings.op.variants["quick"].params == {"block": (32,)}
    assert settings.shapes == ({"rows": 3, "cols": 3},)


def test_files_for_inputs(scale, tmp_path):
    (tmp_path / "x.npy").write_bytes(b"")
    assert scale(f"inputs.x={tmp_path}/x.npy").files == {"x": str(tmp_path / "x.npy")}


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
