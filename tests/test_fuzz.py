"""Whatever stands in a formula, a word or a file: a value or sentences, soon; never a traceback.

`FUZZ_EXAMPLES=20000 pytest tests/test_fuzz.py` looks further, each time elsewhere.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import time

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.config import documents, overrides
from runner.config.compose import CONF, compose
from runner.model import Refusal
from runner.op import formula
from runner.plan import plan
from runner.schema import Config
from runner.typed import fields
from tests import tiny_op

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", 0))
LONGEST_S = 3.0  # of computing: the machine may be busy
few = settings(
    max_examples=EXAMPLES or 300,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
fewer = settings(few, max_examples=max(EXAMPLES // 10, 60))  # those that compose


@contextlib.contextmanager
def soon():
    began = time.process_time()
    yield
    assert time.process_time() - began < LONGEST_S


def sentences(lines):
    for line in lines:
        assert isinstance(line, str) and line.strip() and "Traceback" not in line
        assert len(line) < 5000


# ---- formulas ----

VALUES = {
    "rows": 4,
    "cols": 2**40,
    "p": 2.5,
    "dtype": "float32",
    "flag": True,
    "none": None,
    "inf_": math.inf,
}
ATOMS = st.one_of(
    st.sampled_from(
        [*VALUES, "inf", "9", "0", "1e308", "9**9**9", "2**-1074", "True", "None", "'a'", "min", "x"]
    ),
    st.integers(-(10**40), 10**40).map(str),
    st.floats().map(repr),
)
SIGNS = "+ - * / // % ** << >> & | ^ @ < <= == != > >= and or if in is not".split()


def joined(inner):
    binary = st.tuples(inner, st.sampled_from(SIGNS), inner).map(" ".join)
    called = st.tuples(st.sampled_from(["min", "max", "abs", "open"]), inner, inner).map(
        lambda each: f"{each[0]}({each[1]}, {each[2]})"
    )
    chained = st.tuples(inner, st.sampled_from(SIGNS), st.integers(2, 60)).map(
        lambda each: f" {each[1]} ".join([each[0]] * each[2])
    )
    wrapped = st.tuples(st.sampled_from("-~+("), inner).map(
        lambda each: f"{each[0]}{each[1]}".replace("((", "(")
    )
    choice = st.tuples(inner, inner, inner).map(lambda each: f"({each[0]} if {each[1]} else {each[2]})")
    closed = inner.map(lambda each: f"({each})")
    return st.one_of(binary, called, chained, wrapped, choice, closed)


FORMULAS = st.one_of(st.recursive(ATOMS, joined, max_leaves=12), st.text(max_size=60))


@few
@given(FORMULAS)
def test_formulas(text):
    with soon():
        wrong = formula.fault(text, VALUES)
        assert isinstance(wrong, str)
        try:
            value = formula.evaluate(text, VALUES)
        except Refusal as refusal:
            sentences([str(refusal)])
        else:
            assert not wrong and (value is None or isinstance(value, (bool, int, float, str)))
        with contextlib.suppress(Refusal):
            assert 0 <= formula.amount(text, VALUES, "here") < math.inf


# ---- words of a command line ----

KEYS = [
    *fields(Config),
    "experiment",
    "resume",
    "shape.rows",
    "attrs.factor",
    "limits.check_s",
    "limits.memory_gb",
    "measure.trials",
    "inputs.x",
    "op.variants.naive.target",
    "op.cost.forward.flops",
    "hydra.sweeper.params",
    "hydra/launcher",
    "hydra.job_logging",
    "_target_",
    "op.variants.naive._target_",
]
TEXTS = st.one_of(
    st.sampled_from(
        "scale gelu all null [] {} [1,2] {a: 1} 1,2 range(1,3) glob(*) choice(1,2) ${op} ${a:b} ${ @ "
        "-1 0 nan inf 1e400 true cpu cuda:9 '' \"a 9999999999999999999999 [[[[ {a:{a:{a: ./x ~ \\ =".split()
    ),
    st.integers().map(str),
    st.text(max_size=20),
    st.integers(1, 400).map(lambda depth: "[" * depth + "]" * depth),
)
WORDS = st.one_of(
    st.tuples(st.sampled_from(["", "+", "++", "~"]), st.sampled_from(KEYS), TEXTS).map(
        lambda each: f"{each[0]}{each[1]}={each[2]}"
    ),
    TEXTS,
)


@few
@given(st.lists(WORDS, max_size=4), st.booleans())
def test_words(words, multirun):
    with soon():
        sentences(overrides.faults(words, [CONF], multirun))


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    return tiny_op.write(tmp_path_factory.mktemp("fuzz") / "conf")


@fewer
@given(words=st.lists(WORDS, max_size=3))
def test_words_composed(conf, words):
    settled(["op=scale", "device=cpu", "mode=plan", *words], conf)


def settled(words, conf):
    """The settings that these words give are planned, or refused with sentences."""
    with soon():
        try:
            plan(compose(words, [str(conf)]))
        except Refusal as refusal:
            sentences(str(refusal).splitlines())


# ---- files ----

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**18, 10**30),
    st.floats(),
    FORMULAS,
    st.sampled_from(
        ["${op.name}", "${nope}", "${oc.env:HOME}", "${", "=1+1", "\ud7ff", "\x85", "float32", "torch.mul"]
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(node, path=()):
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in children:
        yield from places(value, (*path, key))


PLACES = [path for path in places(tiny_op.OP) if path]
CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), st.one_of(TREES, st.just(...))), min_size=1, max_size=3)


def changed(changes):
    op = copy.deepcopy(tiny_op.OP)
    for path, value in changes:
        node = op
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change took the place away
            for key in path[:-1]:
                node = node[key]
            if value is ...:
                del node[path[-1]]
            else:
                node[path[-1]] = value
    return op


@fewer
@given(changes=CHANGES)
def test_op_files(conf, changes):
    text = yaml.safe_dump(changed(changes), sort_keys=False, allow_unicode=True)
    composed_file(conf, text)


PIECES = [
    "\n",
    "  ",
    "\t",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary x",
    "# @package _global_\n",
    "defaults: [x]\n",
    "'",
    '"',
    "|\n",
    "\x00",
    "\ufeff",
    "${",
    "${a:b}",
    "? ",
    "1e999",
    "0x",
    "_target_: x\n",
    "...",
]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 2000), st.integers(0, 40), st.one_of(st.sampled_from(PIECES), st.text(max_size=8))
    ),
    min_size=1,
    max_size=4,
)


def edited(edits):
    text = yaml.safe_dump(tiny_op.OP, sort_keys=False)
    for at, length, piece in edits:
        at %= len(text) + 1
        text = text[:at] + piece + text[at + length :]
    return text


@few
@given(edits=EDITS)
def test_the_form_of_files(tmp_path_factory, edits):
    path = tmp_path_factory.getbasetemp() / "form.yaml"
    path.write_text(edited(edits), "utf-8", "surrogatepass")
    with soon():
        for group in ("op", "experiment"):
            sentences(documents.file_faults(path, group))


@fewer
@given(edits=EDITS)
def test_edited_op_files(conf, edits):
    composed_file(conf, edited(edits))


def composed_file(conf, text):
    (conf / "op" / "fuzzed.yaml").write_text(
        text.replace("name: scale", "name: fuzzed"), "utf-8", "surrogatepass"
    )
    settled(["op=fuzzed", "device=cpu", "mode=plan"], conf)


@pytest.mark.parametrize("levels", [6, 30])
def test_aliases_that_unfold(conf, levels):
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, levels)
    )
    composed_file(conf, bomb)
