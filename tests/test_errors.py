"""Bad input: exit code 2, a sentence for each fault on stderr, no traceback, nothing written."""

import math
import sys
import time
from types import SimpleNamespace

import pytest

import runner
from runner import cli
from runner.config import documents
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
    "workload, not profiled": ("workload=train_step", "a step is profiled, not timed: add mode=profile"),
    "workload, and an op": ("op=scale mode=profile workload=train_step", "workload: in place of an op"),
    "workload, no such": ("mode=profile workload=train_stop", "did you mean 'train_step'?"),
    "workload, no such key": (
        "mode=profile workload=train_step workload.bach=4",
        "workload.bach: unknown key",
    ),
    "workload, no such form": (
        "mode=profile workload=train_step workload.gelu=bultin",
        "workload.gelu=bultin: op gelu has no variant 'bultin'; did you mean 'builtin'?",
    ),
    "workload, no such file": (
        "mode=profile workload.target=nowhere.py:make_step",
        "workload.target: there is no file nowhere.py",
    ),
    "workload, steps": ("mode=profile workload=train_step workload.steps=0", "steps=0: must be from 1"),
    "before, alone": ("op=scale before=x", "before: compares two profiles of a step"),
    "before, no such": (
        "mode=profile workload=train_step before=nowhere",
        "before=nowhere: there is no such folder",
    ),
    "profiler, no such": ("op=scale mode=profile profiler=nsis", "no such profiler; did you mean 'nsys'?"),
    "profiler, alone": ("op=scale profiler=nsys", "profiler=nsys: add mode=profile"),
    "key": ("op=scale variants=all", "there is no key 'variants'; did you mean 'variant'?"),
    "key with a plus": ("op=scale +variants=all", "there is no key 'variants'; did you mean 'variant'?"),
    "key of a measure": ("op=scale measure.trails=1", "measure has no key 'trails'; did you mean 'trials'?"),
    "key of limits": ("op=scale limits.built_s=1", "limits has no key 'built_s'; did you mean 'build_s'?"),
    "key of an op": ("op=scale op.variants.naiv.why=x", "there is no such key; did you mean 'naive'?"),
    "new key of an op": ("op=scale +op.variants.naive.wy=x", "naive.wy: unknown key; did you mean 'why'?"),
    "input": ("op=scale inputs.y=/x.pt", "op scale has no input 'y'"),
    "input file": ("op=scale inputs.x=/absent.pt", "inputs.x=/absent.pt: there is no such file"),
    "baseline": ("op=scale baseline=nave", "op scale has no variant 'nave'; did you mean 'naive'?"),
    "no op": ("variant=all", "op: missing; type op=<name>, of add, "),
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
    "dtypes without -m": ("op=scale dtype=float32,bfloat16", "write 'dtype=[float32,bfloat16]'; for"),
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
    "limit, too long": ("op=scale limits.check_s=1e7", "check_s=10000000.0: must be a number up to 1000000"),
    "limit, infinite": ("op=scale limits.check_s=inf", "limits.check_s=inf: must be a number up to 1000000"),
    "limit, undefined": ("op=scale limits.build_s=nan", "limits.build_s=nan: must be a number up to"),
    "budget, infinite": ("op=scale measure.budget_s=inf", "measure.budget_s=inf: must be a number up to"),
    "precision, undefined": ("op=scale measure.precision=nan", "precision=nan: must be a number up to 1"),
    "deleted": ("op=scale ~variant", "~variant: a key cannot be taken out"),
    "deleted mapping": ("op=scale ~shape", "~shape: a key cannot be taken out"),
    "deleted limit": ("op=scale ~limits.check_s", "~limits.check_s: a key cannot be taken out"),
    "deleted measure": ("op=scale ~measure", "~measure: a key cannot be taken out"),
    "digits": ("op=scale shape.cols=" + "9" * 5000, "shape.cols=99999999..(5000 digits)"),
    "digits of a dim": ("op=scale shape.cols=" + "9" * 500, "is below 2**63, got 99999999..(500 digits)"),
    "sweeper": ("-m op=scale hydra.sweeper._target_=x.y", "`_target_` is not used here; a plugin is"),
    "launcher": ("-m op=scale hydra/launcher=odd", "there is no hydra/launcher 'odd'; there is basic"),
    "pattern": ("-m op=glob(zz*)", "op=glob(zz*): a sweep without any value, so there are no jobs; there"),
    "pattern of no files": ("-m op=scale variant=glob(*)", "glob(..) chooses among files"),
    "empty range": ("-m op=scale shape.cols=range(1,1)", "a sweep without any value, so there are no"),
    "endless range": ("-m op=scale seed=range(1,10000000000)", "more than 10000 jobs"),
    "many jobs": ("-m op=scale seed=range(0,200) trials=range(1,201)", "40000 jobs; at most 10000 at a time"),
    "a page of it": ("op=scale --cfg job shape.cols=" + "9" * 5000, "shape.cols=99999999..(5000 digits)"),
    "node of hydra": ("-m op=scale hydra.sweeper=3", "hydra.sweeper=3: a mapping that cannot be replaced"),
    "no step": ("-m op=scale seed=range(1,9,0)", "a range needs a step other than 0"),
    "no output": ("op=scale output=", "output=: name a folder"),
    "empty config dir": ("--config-dir= op=scale", "--config-dir=: name a folder"),
    "set in a list": ("op=scale shapes=[{rows:3},smoke]", "a list holds shapes only; a set is named alone"),
    "parameters": ("op=scale op.variants.quick.params=8", "op.variants.quick.params=8: variants.quick."),
    "mode alone": ("list", "'list' is not key=value; did you mean mode=list?"),
    "experiment alone": ("smoke", "'smoke' is not key=value; did you mean experiment=smoke?"),
    "attribute, undefined": ("op=scale attrs.factor=nan", "attrs.factor=nan: not a number"),
    "surrogate": ("op=scale why=\udcff", "is not UTF-8 text"),
    "nested": ("op=scale op.why=" + "[" * 2000 + "]" * 2000, "nested too deep"),
    "target in a mapping": ("op=scale +attrs.x={a:[{_target_:os.getcwd}]}", "`_target_` is not used here"),
    "callback": ("op=scale +hydra.callbacks.x.y=1", "what Hydra would run for it is not used here"),
    "logging": ("op=scale +hydra.job_logging.handlers.x.y=1", "what Hydra would run for it is not used"),
    "resolver": ("op=scale why=${oc.env:HOME}", "a resolver (${name:..}) is not used here; write the value"),
    "package": ("op@hydra.callbacks=scale", "a group has its place; write it without @hydra.callbacks"),
    "launcher, number": ("op=scale hydra/launcher=-1", "name one of them, as in hydra/launcher=basic"),
    "launcher, list": ("op=scale hydra/launcher=[[]]", "name one of them, as in hydra/launcher=basic"),
    "launcher, deleted": ("op=scale ~hydra/launcher=-1", "name one of them, as in hydra/launcher=basic"),
    "nested, less": ("op=scale why=" + "[" * 60 + "]" * 60, "nested too deep"),
    "two config options": ("op=scale --cfg job --info all", "only one of --run"),
}  # fmt: skip


@pytest.mark.parametrize("words, sentence", WORDS.values(), ids=WORDS)
def test_words(refused, words, sentence):
    split = words.replace("{cols: 4}", "{cols:4}").replace("{rows: 4, col: 4}", "{rows:4,col:4}").split()
    split = [word.replace("{rows:3}", "{rows: 3}") for word in split]
    (line,) = refused(*split, own="--config-dir" not in words)
    assert sentence in line and len(line) < 400


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
    "parameter, no list": ({"variants.quick.params.block": {"a": 1}}, "params.block: expected a list"),
    "init": ({"inputs.x.init": "norml"}, "no init 'norml'; did you mean 'normal'?"),
    "layouts": ({"inputs.x.layouts": ["transpose"]}, "no layout 'transpose'; did you mean 'transposed'?"),
    "dtypes": ({"dtypes": ["float31"]}, "dtypes: no dtype 'float31'; did you mean 'float32'?"),
    "dtypes for two": ({"dtypes": ["float32+float32"]}, "names 2 dtypes, and the op has 1 inputs"),
    "no set": ({"shapes.smoke": ...}, "shapes.smoke: missing"),
    "negative size": ({"shapes.cpu": [{"rows": -4}]}, "shapes.cpu[0].rows: a dim cannot be negative"),
    "unit": ({"variants.naive.unit": "fp23"}, "no unit 'fp23'; did you mean 'fp32'?"),
    "replays graphs": (
        {"variants.naive.compile": {"mode": "reduce-overhead"}},
        "compile: this replays CUDA graphs",
    ),
    "replays graphs, by option": (
        {"variants.naive.compile": {"options": {"triton.cudagraphs": True}}},
        "compile: this replays CUDA graphs",
    ),
    "accuracy": ({"variants.naive.accuracy": "exact"}, "no accuracy 'exact'"),
    "work": ({"variants.naive.work": 0}, "work: must be above 0"),
    "name": ({"name": "skale"}, "name: 'skale', and the file says 'scale'"),
    "name taken": ({"attrs.rows": [1]}, "attribute 'rows': the name is taken, it is also a dim"),
    "reserved name": ({"attrs.dtype": [1]}, "'dtype': the name is taken, it is also a word"),
    "passed twice": ({"variants.quick.kwargs": {"factor": 1}}, "kwargs.factor: also in attrs"),
    "group as a name": ({"variants.all": {"target": "torch.mul"}}, "the name also means a group"),
    "work, undefined": ({"variants.naive.work": math.nan}, "work: must be above 0 and finite, got nan"),
    "size, infinite": ({"inputs.x.shape": ["inf"]}, "inputs.x.shape[0]: the formula 'inf' gives inf; a"),
    "size, undefined": ({"inputs.x.shape": ["inf-inf"]}, "the formula 'inf-inf' gives nan; a dim is a whole"),
    "size, negative": ({"inputs.x.shape": ["rows-10"]}, "gives -2 at rows=8; a dim cannot be negative"),
    "size, a part": ({"inputs.x.shape": ["rows/3"]}, "at rows=8; a dim is a whole number, got 2.6"),
    "size, a truth": ({"inputs.x.shape": ["rows>3"]}, "gives True at rows=8; a dim is a whole number"),
    "flops, negative": ({"cost.forward.flops": -5}, "op scale: cost.forward.flops: the formula '-5' gives"),
    "flops, infinite": ({"cost.forward.flops": "inf"}, "gives inf; a finite number from 0 on is needed"),
    "write, negative": ({"cost.forward.write": "-rows"}, "cost.forward.write: the formula '-rows' gives -8"),
    "flops, a truth": ({"cost.forward.flops": "rows > 3"}, "gives True at rows=8; a finite number"),
    "read, no value": ({"cost.forward.read": "rows/(cols-16)"}, "has no value at rows=8, cols=16"),
    "memory, negative": ({"variants.quick.memory": "-rows"}, "quick.memory: the formula '-rows' gives"),
    "memory, a text": (
        {"variants.quick.params": {"b": ["q"]}, "variants.quick.memory": "b*2**40"},
        "has no value at b='q': texts and lists have no arithmetic",
    ),
    "requires": ({"variants.naive.requires": [""]}, "variants.naive.requires: an empty name"),
    "variant name": ({"variants.a/b": {"target": "torch.mul"}}, "variant 'a/b': a name has at most 60"),
    "variant without name": ({"variants.": {"target": "torch.mul"}}, "variant '': a name"),
    "variant, dots": ({"variants": {"..": {"target": "torch.mul"}}}, "variant '..': a name"),
    "long name": ({"variants." + "a" * 61: {"target": "torch.mul"}}, "aaa': a name has at most 60 letters"),
    "attribute name": ({"attrs.a b": [1]}, "attribute 'a b': a name has letters, digits and _, and begins"),
    "parameter name": ({"variants.quick.params.a-b": [1]}, "params: 'a-b': a name has letters"),
    "group name": ({"variants.other.group": "a b"}, "other.group: group 'a b': a name has at most"),
    "set name": ({"shapes.a b": [{"rows": 1}]}, "shapes: set 'a b': a name has at most"),
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
        ("", "op/broken.yaml: expected a mapping of keys such as name and dims"),
        ("3\n", "op/broken.yaml: expected a mapping"),
        ("name: a\x00b\n", "op/broken.yaml: not valid YAML (the control character #x0000 at position 7)"),
        ("name: broken\nwhy: ${nope}\n", "op/broken.yaml: op.why: Interpolation key 'nope' not found"),
        ("name: broken\nwhy: ${\n", "op/broken.yaml, line 2: '${' is no interpolation"),
        ("off: 3\n", 'op/broken.yaml, line 1: off: quote the key, "off": YAML reads off, on, yes and no'),
        ("attrs:\n  on: [1]\n", "op/broken.yaml, line 2: on: quote the key"),
        ("attrs: {d: [!!binary aGk=]}\n", "op/broken.yaml, line 1: not valid YAML here (the tag !!binary)"),
        ("attrs: {d: [!!timestamp 2024-01-01]}\n", "(the tag !!timestamp)"),
        ("a: &x {z: *x}\n", "op/broken.yaml, line 1: *x stands inside of &x"),
        ("a: " + "[" * 60 + "]" * 60, "line 1: nested deeper than 50 levels"),
        ("a: " + "[" * 3000 + "]" * 3000, "op/broken.yaml, line 1: "),
        ('why: "\\ud800"\n', "op/broken.yaml, line 1: "),
        ("a: " + "9" * 5000, "op/broken.yaml, line 1: a number of 5000 digits"),
        ("defaults: 3\n", "op/broken.yaml: defaults: expected a list"),
    ],
)
def test_yaml_that_is_broken(refused, tmp_path, text, sentence):
    (tmp_path / "conf" / "op").mkdir(parents=True)
    (tmp_path / "conf" / "op" / "broken.yaml").write_text(text)
    lines = refused("op=broken")
    assert any(sentence in line for line in lines), lines


def test_aliases_that_unfold_without_end_are_refused_at_once(refused, tmp_path):
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 7))
    (tmp_path / "conf" / "op").mkdir(parents=True)
    (tmp_path / "conf" / "op" / "broken.yaml").write_text(bomb)
    (tmp_path / "conf" / "experiment").mkdir()
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [override /op: broken]\n"
    )
    began = time.monotonic()
    for word in ("op=broken", "experiment=mine"):
        (line,) = refused(word)
        assert "op/broken.yaml, line 6: too large, more than 20000 values once its aliases" in line
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\n" * 500 + "# @package _global_\nvariant: all\n", ""),
        ("#   @package   _global_  \nvariant: all\n", ""),
        ("# why\n# @package _global_\nvariant: all\n", "is missing"),  # Hydra stops at the first comment
        ("# @package _global_ too\nvariant: all\n", "is not `# @package _global_`"),
        ("# why\n" * 5000 + "variant: all\n", "is missing"),
    ],
)
def test_the_header_of_an_experiment(tmp_path, text, sentence):
    path = tmp_path / "some.yaml"
    path.write_text(text)
    assert bool(documents.file_faults(path, "experiment")) == bool(sentence)
    assert sentence in " ".join(documents.file_faults(path, "experiment"))


def test_an_anchor_used_twice_is_fine(tmp_path):
    path = tmp_path / "some.yaml"
    path.write_text("a: &x {b: [1, 2]}\nc: *x\nd: {<<: *x}\n'off': 3\n")
    assert documents.file_faults(path, "op") == []


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
    "no package": ("variant: all\n", "mine.yaml: the line `# @package _global_` is missing"),
    "defaults": ("# @package _global_\ndefaults: 3\n", "mine.yaml: defaults: expected a list, as in"),
    "two ops": ("# @package _global_\ndefaults:\n  - override /op: [gelu, add]\n", "a run has one op, named"),
    "no package, defaults": ("defaults:\n  - override /op: gelu\n", "`# @package _global_` is missing"),
    "number of an op": (
        "# @package _global_\nhydra: {sweeper: {params: {op: 3}}}\n",
        "op: expected names",
    ),
    "list of ops": (
        "# @package _global_\nhydra: {sweeper: {params: {op: [gelu, add]}}}\n",
        "hydra.sweeper.params.op: a run has one op; for a run of each write op: gelu,add",
    ),
    "sweeper": (
        "# @package _global_\nhydra: {sweeper: {_target_: x.y}}\n",
        "line 2: `_target_` is not used here",
    ),
    "callbacks": (
        "# @package _global_\nhydra: {callbacks: {x: {class: os.system}}}\n",
        "mine.yaml: hydra.callbacks: not set here; an experiment may set hydra.sweeper and hydra.launcher",
    ),
    "logging": (
        "# @package _global_\nhydra: {job_logging: {handlers: {x: {(): os.system}}}}\n",
        "hydra.job_logging: not set here",
    ),
    "logging of another file": (
        "# @package _global_\ndefaults: [override /hydra/job_logging: mine]\n",
        "defaults: expected entries such as `override /op: gelu`",
    ),
    "another group": (
        "# @package _global_\ndefaults: [/other/x@hydra.callbacks]\n",
        "defaults: expected entries such as `override /op: gelu`",
    ),
    "environment": (
        "# @package _global_\ndefaults: [override /op: gelu]\nwhy: 'a ${b.${oc.env:HOME}}'\n",
        "line 3: 'a ${b.${oc.env:HOME}}' asks a resolver, which is not used here; write the value",
    ),
    "hydra": ("# @package _global_\nhydra: 3\n", "mine.yaml: hydra: expected a mapping, got 3"),
    "measure": ("# @package _global_\nmeasure: quick\n", "`defaults: [override /measure: quick]`"),
    "interpolation": (
        "# @package _global_\ndefaults:\n  - override /op: gelu\nwhy: ${nope}\n",
        "experiment=mine: why: Interpolation key 'nope' not found",
    ),
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


@pytest.mark.parametrize("name", ["hydra/launcher/x.yaml", "schema.yaml"])
def test_a_config_dir_cannot_take_the_place_of_what_is_ours(refused, tmp_path, name):
    conf = tiny_op.write(tmp_path / "conf")
    (conf / name).parent.mkdir(parents=True, exist_ok=True)
    (conf / name).write_text("hydra: {callbacks: {x: {_target_: os.getcwd}}}\n")
    (line,) = refused("op=scale", "hydra/launcher=x" if "launcher" in name else "trials=1")
    assert f"conf/{name.partition('/')[0]}: not read from a --config-dir" in line


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# @package _global_\nhydra: {callbacks: {x: 1}}\n", "`# @package` belongs to experiments"),
        ("defaults: [/other/x@hydra.callbacks]\n", "defaults: expected names of other files in op"),
        ("defaults: [other]\nname: mine\n", "op/other.yaml, line 1: `_target_` is not used here"),
        ("defaults: [mine]\nname: mine\n", "op/mine.yaml: defaults: mine leads back to itself"),
    ],
)
def test_an_op_file_cannot_reach_beyond_its_keys(refused, tmp_path, text, sentence):
    (tmp_path / "conf" / "op").mkdir(parents=True)
    (tmp_path / "conf" / "op" / "mine.yaml").write_text(text)
    (tmp_path / "conf" / "op" / "other.yaml").write_text("kwargs: {_target_: os.system}\n")
    lines = refused("op=mine", "device=cpu")
    assert any(sentence in line for line in lines), lines


def test_cuda_without_a_gpu(refused, monkeypatch):
    from runner.config import devices

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
