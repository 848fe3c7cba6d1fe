"""Targets and sources: found in files, nothing imported."""

import sys

import pytest

from runner.op.targets import NotFound, Search, find, language


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A user's folder with a conf/ in it, as --config-dir, beside a kernel file."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "mine.py").write_text("import triton\nif True:\n    def one(x): ...\ntwo = three = one\n")
    (tmp_path / "conf" / "near.py").write_text("class Near:\n    def method(self): ...\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "starred.py").write_text("from os.path import *\n")
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "k.cu").write_text('m.impl("row_op", f);  // not row_operator\n')
    monkeypatch.chdir("/")
    return Search.beside([tmp_path / "conf"])


@pytest.mark.parametrize("name", ["one", "two", "three", "triton"])
def test_names_of_a_file(user, tmp_path, name):
    found = find(f"mine.py:{name}", user)
    assert (found.file, found.attribute, found.module) == (str(tmp_path / "mine.py"), name, "")
    assert language(found, []) == "triton"


@pytest.mark.parametrize(
    "text",
    [
        "near.py:Near", "broken.py:anything", "starred.py:join", "torch.softmax", "torch.cdist", "math.sqrt",
        "torch.nn.functional.gelu", "torch.special.erf", "torch.Tensor.add", "torch.ops.aten.softmax",
        "kernels.gelu.naive.gelu", "kernels/gelu/naive.py:gelu", "numpy.add", "rich.table.Table",
    ],
)  # fmt: skip
def test_what_is_there(user, text):
    found = find(text, user)
    assert bool(found.module) != bool(found.file)
    assert text.endswith(found.attribute)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mine.py:on", "defines no 'on'; did you mean 'one'?"),
        ("mine.py:method", "defines no 'method'"),
        ("near.py:method", "defines no 'method'"),
        ("mime.py:one", r"there is no file mime.py .*; did you mean 'mine.py'\?"),
        ("mine.py:", "names no function"),
        ("kernels.gelu.naive.gellu", "defines no 'gellu'; did you mean 'gelu'?"),
        ("kernels.gelu.nave.gelu", "there is no 'nave' in the folder .*; did you mean 'naive'?"),
        ("kernels.gelu.naive", "is a module, not a function"),
        ("torch.sofmax", "torch has no 'sofmax'; did you mean 'softmax'?"),
        ("torch.nn.functional.gellu", "did you mean 'gelu'?"),
        ("torch.ops.aten.sofmax", "no operator aten::sofmax; did you mean 'softmax'?"),
        ("torch.ops.kernels.row_op", "nothing registers 'torch.ops.kernels.row_op'"),
        ("torch.ops.kernels", "write torch.ops.<namespace>.<op>"),
        ("rich.table.Tabel", "did you mean 'Table'?"),
        (
            "absent.module.f",
            r"no module 'absent' here; if it may be missing, say requires: \[absent\]",
        ),
        ("a b", "is no target"),
        ("", "is no target"),
    ],
)
def test_what_is_not_there(user, text, sentence):
    with pytest.raises(NotFound, match=sentence.replace("?", r"\?") if r"\?" not in sentence else sentence):
        find(text, user)


def test_an_operator_is_in_its_sources(user, tmp_path):
    source = str(user.file("csrc/k.cu"))
    assert source == str(tmp_path / "csrc" / "k.cu")
    found = find("torch.ops.kernels.row_op", user, [source])
    assert (found.module, found.attribute, language(found, [source])) == (
        "torch.ops.kernels",
        "row_op",
        "cuda",
    )
    with pytest.raises(NotFound, match="'row' appears in none of its sources"):
        find("torch.ops.kernels.row", user, [source])


def test_a_required_package_may_be_missing(user):
    found = find("absent.ops.f", user, requires=["absent"])
    assert (found.module, found.attribute, found.path) == ("absent.ops", "f", "")
    assert find("absent_one.f", user, requires=["absent-one"]).module == "absent_one"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [([], "python"), (["a.cpp"], "cpp"), (["a.cc", "b.cu"], "cuda"), (["a.cpp", "a.cuh"], "cpp")],
)
def test_language(user, sources, expected):
    assert language(find("near.py:Near", user), sources) == expected


def test_the_order_of_folders(user, tmp_path, monkeypatch):
    (tmp_path / "conf" / "mine.py").write_text("one = 1\n")
    assert find("mine.py:one", user).file == str(tmp_path / "conf" / "mine.py")
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "mine.py").write_text("one = 1\n")
    monkeypatch.chdir(tmp_path / "cwd")
    assert find("mine.py:one", Search.beside([tmp_path / "conf"])).file == str(tmp_path / "cwd" / "mine.py")


def test_a_changed_file_is_read_again(user, tmp_path):
    find("mine.py:one", user)
    (tmp_path / "mine.py").write_text("def other(): ...\n")
    with pytest.raises(NotFound):
        find("mine.py:one", user)


def test_nothing_is_imported(user):
    before = set(sys.modules)
    for text in ("mine.py:one", "kernels.gelu.naive.gelu", "rich.table.Table"):
        find(text, user)
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert not new & {"mine", "kernels", "rich"}
