"""Bad input: exit code 2, a sentence for each fault on stderr, no traceback, nothing written."""

import sys
from types import SimpleNamespace

import pytest

import runner
from runner import cli
from tests import tiny_op


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch, tmp_path):
    """A refused run never gets to the driver; and it leaves no file where it was started."""

    def execute(settings, folder):
        raise AssertionError("a refused run was started")

    fake = SimpleNamespace(execute=execute)
    monkeypatch.setitem(sys.modules, "runner.driver", fake)
    monkeypatch.setattr(runner, "driver", fake, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert list((tmp_path / "here").iterdir()) == []


@pytest.fixture
def refused(capsys, tmp_path):
    """The lines of a refusal, for words and for changes to the small op's YAML."""

    def lines(*words, changes=None, own=True):
        if own:
            words = ("--config-dir", str(tiny_op.write(tmp_path / "conf", changes)), *words)
        assert cli.main(list(words)) == 2
        out, err = capsys.readouterr()
        assert "Traceback" not in err and out == ""
        assert all(line.startswith("runner: ") for line in err.splitlines())
        return [line.removeprefix("runner: ") for line in err.splitlines()]

    return lines


WORDS = {
    "op": ("op=scal", "there is no op 'scal'; did you mean 'scale'?"),
    "measure": ("op=scale measure=quik", "there is no measure 'quik'; did you mean 'quick'?"),
    "experiment": ("op=scale experiment=headlin", "no experiment 'headlin'; did you mean 'headline'?"),
    "variant": ("op=scale variant=naiv", "op scale has no variant 'naiv'; did you mean 'naive'?"),
    "dtype": ("op=scale dtype=float23", "op scale has no dtype 'float23'; did you mean 'float32'?"),
    "dim": ("op=scale shape.colz=3", "op scale has no dim 'colz'; did you mean 'cols'?"),
    "attribute": ("op=scale attrs.faktor=3", "op scale has no attribute 'faktor'; did you mean 'factor'?"),
    "attribute value": ("op=scale attrs.form=plane", "no such value; did you mean 'plain'?"),
    "shape set": ("op=scale shapes=smok", "op scale has no set 'smok'; did you mean 'smoke'?"),
    "layout": ("op=scale layout=contiguus", "no layout 'contiguus'; did you mean 'contiguous'?"),
    "direction": ("op=scale direction=foward", "no direction 'foward'; did you mean 'forward'?"),
    "mode": ("op=scale mode=bensh", "mode=bensh: no such mode; did you mean 'bench'?"),
    "mode, later": ("op=scale mode=profile", "mode=profile: not available yet"),
    "key": ("op=scale variants=all", "there is no key 'variants'; did you mean 'variant'?"),
    "key with a plus": ("op=scale +variants=all", "there is no key 'variants'; did you mean 'variant'?"),
    "key of a measure": ("op=scale measure.trails=1", "measure has no key 'trails'; did you mean 'trials'?"),
    "key of limits": ("op=scale limits.built_s=1", "limits has no key 'built_s'; did you mean 'build_s'?"),
    "key of an op": ("op=scale op.variants.naiv.why=x", "there is no such key; did you mean 'naive'?"),
    "new key of an op": ("op=scale +op.variants.naive.wy=x", "naive.wy: unknown key; did you mean 'why'?"),
    "input": ("op=scale inputs.y=/x.pt", "op scale has no input 'y'"),
    "input file": ("op=scale inputs.x=/absent.pt", "inputs.x=/absent.pt: there is no such file"),
    "baseline": ("op=scale baseline=nave", "op scale has no variant 'nave'; did you mean 'naive'?"),
    "no op": ("variant=all", "op: missing; type op=<name>, of add, cdist, "),
    "negative dim": ("op=scale shape.rows=-1", "shape.rows=-1: a dim cannot be negative"),
    "fractional dim": ("op=scale shape.rows=1.5", "shape.rows=1.5: a dim is a whole number, got 1.5"),
    "dim that is a list": ("op=scale shape.rows=[1,2]", "sweep with -m shape.rows=1,2"),
    "shape in one word": ("op=scale shape=1024x1024", "as in shape.rows=1024 shape.cols=1024"),
    "unquoted shapes": ("op=scale shapes=[rows:4]", "'shapes=[{rows: 8, cols: 8}]'"),
    "dim that is missing": ("op=scale shapes=[{cols: 4}]", "shapes[0]: dim 'rows' is missing"),
    "unknown dim in a list": ("op=scale shapes=[{rows: 4, col: 4}]", "no dim 'col'; did you mean"),
    "no shapes": ("op=scale shapes=[]", "shapes=[]: an empty list"),
    "list of ops": ("op=[scale,gelu]", "type -m op=scale,gelu, or write an experiment with"),
    "ops without -m": ("op=scale,gelu", "a run has one op; for a run of each add -m"),
    "dtypes without -m": ("op=scale dtype=float32,bfloat16", "write dtype=[float32,bfloat16]; for"),
    "seeds without -m": ("op=scale seed=1,2", "seed=1,2: several values; for a run each add -m"),
    "two experiments": ("-m experiment=headline,smoke", "one experiment at a time"),
    "a sweep as a run": ("experiment=headline", "type python -m runner -m experiment=headline"),
    "key of one op": ("-m op=scale,gelu op.why=x", "beside several ops write op.why='choice(x)'"),
    "no measure": ("op=scale measure=null", "measure=null: leave it out, or name one of default, quick"),
    "odd list": ("-m op=scale variant=naive,,builtin", "cannot read 'variant=naive,,builtin'"),
    "no variants": ("op=scale variant=[]", "variant=[]: an empty list"),
    "op given twice": ("op=scale op=gelu", "op: given twice"),
    "no key": ("scale", "'scale' is not key=value; did you mean op=scale?"),
    "no option": ("--op scale", "unrecognized arguments: --op"),
    "unreadable": ("op=scale shapes=[{rows:4]", "cannot read 'shapes=[{rows:4]'"),
    "type": ("op=scale trials=many", "trials=many: must be a whole number or auto"),
    "no trials": ("op=scale trials=0", "trials=0: must be at least 1"),
    "seed": ("op=scale seed=-3", "seed=-3: must be from 0 to"),
    "limit": ("op=scale limits.check_s=0", "limits.check_s=0: must be above 0"),
    "device": ("op=scale device=gpu", "device=gpu: not a device"),
    "config dir": ("--config-dir /absent op=scale", "--config-dir /absent: there is no such folder"),
    "interpolation": ("op=scale seed=${nothing}", "Interpolation key 'nothing' not found"),
    "two config options": ("op=scale --cfg job --info all", "only one of --run"),
}  # fmt: skip


@pytest.mark.parametrize("words, sentence", WORDS.values(), ids=WORDS)
def test_words(refused, words, sentence):
    split = words.replace("{cols: 4}", "{cols:4}").replace("{rows: 4, col: 4}", "{rows:4,col:4}").split()
    (line,) = refused(*split, own="--config-dir" not in words)
    assert sentence in line


FILES = {
    "no cost": ({"cost": ...}, "cost: missing; give flops, read and write as formulas"),
    "no forward cost": ({"cost": {}}, "cost.forward: missing; give flops"),
    "unknown name": ({"cost.forward.flops": "rows*colz"}, "unknown name 'colz'; did you mean 'cols'?"),
    "forbidden": ({"cost.forward.read": "rows.real"}, "a formula may not have attribute access"),
    "accepts": ({"variants.quick.accepts": "devise == 'cpu'"}, "quick.accepts: the formula"),
    "opt_in": ({"variants.quick.opt_in": "open('x')"}, "quick.opt_in: the formula"),
    "memory": ({"variants.quick.memory": "rows*width"}, "unknown name 'width'"),
    "default of a dim": ({"dim_defaults.cols": "2*row"}, "unknown name 'row'; did you mean 'rows'?"),
    "default in a circle": ({"dim_defaults.rows": "cols/2", "shapes.cpu": [{}]}, "each other in a circle"),
    "input size": ({"inputs.x.shape": ["rows", "col"]}, "inputs.x.shape[1]: the formula 'col'"),
    "source": ({"variants.naive.sources": ["absent.cu"]}, "naive.sources: there is no file absent.cu"),
    "source, near": ({"variants.naive.sources": ["scale.pi"]}, "did you mean 'scale.py'?"),
    "target file": ({"variants.naive.target": "scal.py:scale"}, "there is no file scal.py"),
    "target name": ({"variants.naive.target": "scale.py:scal"}, "defines no 'scal'; did you mean 'scale'?"),
    "target package": ({"variants.naive.target": "absent.f"}, "no module 'absent' here; if it may be"),
    "target of torch": ({"variants.naive.target": "torch.softmx"}, "no 'softmx'; did you mean 'softmax'?"),
    "target's operator": ({"variants.naive.target": "torch.ops.kernels.f"}, "nothing registers 'torch.ops"),
    "reference": ({"reference.target": "torch.mull"}, "reference.target: torch has no 'mull'"),
    "variant key": ({"variants.naive.targt": "x"}, "naive.targt: unknown key; did you mean 'target'?"),
    "op key": ({"baselin": "naive"}, "baselin: unknown key; did you mean 'baseline'?"),
    "baseline": ({"baseline": "nave"}, "baseline: no variant 'nave'; did you mean 'naive'?"),
    "grad": ({"grad": ["y"]}, "grad: no input 'y'; there is x"),
    "attribute without values": ({"attrs.factor": []}, "attrs.factor: an empty list"),
    "parameter without values": ({"variants.quick.params.block": []}, "params.block: an empty list"),
    "parameter, no list": ({"variants.quick.params.block": 64}, "params.block: expected a list, got 64"),
    "init": ({"inputs.x.init": "norml"}, "no init 'norml'; did you mean 'normal'?"),
    "layouts": ({"inputs.x.layouts": ["transpose"]}, "no layout 'transpose'; did you mean 'transposed'?"),
    "dtypes": ({"dtypes": ["float31"]}, "dtypes: no dtype 'float31'; did you mean 'float32'?"),
    "dtypes for two": ({"dtypes": ["float32+float32"]}, "names 2 dtypes, and the op has 1 inputs"),
    "no set": ({"shapes.smoke": ...}, "shapes.smoke: missing"),
    "negative size": ({"shapes.cpu": [{"rows": -4}]}, "shapes.cpu[0].rows: a dim cannot be negative"),
    "unit": ({"variants.naive.unit": "fp23"}, "no unit 'fp23'; did you mean 'fp32'?"),
    "accuracy": ({"variants.naive.accuracy": "exact"}, "no accuracy 'exact'"),
    "work": ({"variants.naive.work": 0}, "work: must be above 0"),
    "name": ({"name": "skale"}, "name: 'skale', and the file says 'scale'"),
    "name taken": ({"attrs.rows": [1]}, "attribute 'rows': the name is taken, it is also a dim"),
    "reserved name": ({"attrs.dtype": [1]}, "'dtype': the name is taken, it is also a word"),
    "passed twice": ({"variants.quick.kwargs": {"factor": 1}}, "kwargs.factor: also in attrs"),
    "group as a name": ({"variants.all": {"target": "torch.mul"}}, "the name also means a group"),
    "_target_": ({"variants.naive.kwargs": {"_target_": "os.system"}}, "`_target_` is not used here"),
}  # fmt: skip


@pytest.mark.parametrize("changes, sentence", FILES.values(), ids=FILES)
def test_op_files(refused, changes, sentence):
    lines = refused("op=scale", "device=cpu", changes=changes)
    assert any(sentence in line for line in lines), lines
    assert len(lines) <= 2


def test_everything_wrong_is_said_at_once(refused):
    words = ["variant=naiv", "dtype=float31", "shape.rows=-1", "trials=0", "seed=x", "layout=odd"]
    lines = refused("op=scale", *words)
    for word in ("naiv'", "float31", "rows=-1", "trials=0", "seed:", "layout=odd"):
        assert len([line for line in lines if word in line]) == 1, word
    changes = {"variants.naive.target": "scale.py:scal", "cost.forward.flops": "rowz", "baseline": "nave"}
    lines = refused("op=scale", *words, changes=changes)
    for word in ("'scal'", "'rowz'", "'nave'", "trials=0", "seed:"):
        assert len([line for line in lines if word in line]) == 1, word


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("name: scale\ndims: [rows\nwhy: x\n", "op/broken.yaml, line 3: not valid YAML"),
        ("a: 1\n\tb: 2\n", "line 2: not valid YAML"),
        ("- a\n- b\n", "op/broken.yaml: expected a mapping"),
        ("", "broken.yaml: name: missing"),
    ],
)
def test_yaml_that_is_broken(refused, tmp_path, text, sentence):
    (tmp_path / "conf" / "op").mkdir(parents=True)
    (tmp_path / "conf" / "op" / "broken.yaml").write_text(text)
    lines = refused("op=broken")
    assert any(sentence in line for line in lines), lines


def test_yaml_that_is_no_text(refused, tmp_path):
    (tmp_path / "conf" / "op").mkdir(parents=True)
    (tmp_path / "conf" / "op" / "broken.yaml").write_bytes(b"name: \xff\xfe")
    (line,) = refused("op=broken")
    assert "conf/op/broken.yaml: not UTF-8 text (invalid start byte at byte 6)" in line


def test_the_same_name_in_two_folders(refused, tmp_path):
    tiny_op.write(tmp_path / "conf", name="gelu")
    (line,) = refused("op=gelu", "device=cpu")
    assert "op=gelu: there are two, " in line and "rename one" in line


EXPERIMENTS = {
    "unknown key": ("# @package _global_\nvarint: all\n", "varint: unknown key; did you mean 'variant'?"),
    "no package": ("variant: all\n", "`# @package _global_` as its first line"),
    "op as a key": ("# @package _global_\nop: gelu\n", "`defaults: [override /op: gelu]`"),
    "unknown op": ("# @package _global_\ndefaults:\n  - override /op: gellu\n", "did you mean 'gelu'?"),
}


@pytest.mark.parametrize("text, sentence", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_experiments(refused, tmp_path, text, sentence):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(text)
    lines = refused("experiment=mine", "device=cpu")
    assert any(sentence in line for line in lines), lines


def test_an_output_folder_that_cannot_be_written(refused, tmp_path):
    (tmp_path / "file").write_text("")
    (line,) = refused("op=scale", f"output={tmp_path}/file/deep")
    assert f"{tmp_path}/file is not a folder" in line
    (line,) = refused("op=scale", "output=/proc/runs")
    assert "cannot write in /proc" in line


def test_cuda_without_a_gpu(refused, monkeypatch):
    from runner import devices

    monkeypatch.setattr(devices, "driver", lambda: (0, "the CUDA driver sees no GPU"))
    (line,) = refused("op=scale", "device=cuda")
    assert line == "device=cuda: the CUDA driver sees no GPU; device=cpu runs without a GPU"
    monkeypatch.setattr(devices, "driver", lambda: (1, ""))
    monkeypatch.setattr(devices, "torch_obstacle", lambda: "the installed torch is built for the CPU only")
    (line,) = refused("op=scale", "device=cuda:0")
    assert "built for the CPU only" in line
    monkeypatch.setattr(devices, "torch_obstacle", lambda: "")
    (line,) = refused("op=scale", "device=cuda:7")
    assert line == "device=cuda:7: there is only cuda:0"
