"""A variant that changes the module of another is seen, also where it does so when that is first imported."""

import sys
import types

import pytest

from runner.worker.modules import Modules

HELPER = """
import functools
from math import sqrt

LIMIT = 3


def scale(x, by=2):
    return x * by


def _doubled(function):
    @functools.wraps(function)
    def call(x):
        return 2 * function(x)
    return call


@_doubled
def twice(x):
    return x


def early(x):
    return x


early = functools.partial(early, 1)


class Kernel:
    @staticmethod
    def forward(x):
        return x
"""


@pytest.fixture
def helper(tmp_path, monkeypatch):
    (tmp_path / "helper_of_variants.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    import helper_of_variants

    yield helper_of_variants
    del sys.modules["helper_of_variants"]


def watched():
    """Of this process only what lies outside of its packages, the project's own left out."""
    known = Modules((sys.prefix, sys.base_prefix))
    return known, [words for words in known.adopt() if "helper" in words]


def slow(x, by=2):
    return sum(x for _ in range(by))


def _other_code(module):
    module.scale.__code__ = slow.__code__


def _other_launcher(module):
    module.twice.__dict__["run"] = slow


CHANGES = {
    "another function": (lambda module: setattr(module, "scale", slow), "scale"),
    "other code": (_other_code, "scale"),
    "another default": (lambda module: setattr(module.scale, "__defaults__", (3,)), "scale"),
    "another method": (lambda module: setattr(module.Kernel, "forward", staticmethod(slow)), "forward"),
    "a function of its imports": (lambda module: setattr(module, "sqrt", slow), "sqrt"),
    "another launcher": (_other_launcher, "twice"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_variants_module_that_was_changed_is_named(helper, name):
    known, found = watched()
    assert not found and known.changes() == []
    change, words = CHANGES[name]
    change(helper)
    assert [words in one and "(replaced)" in one for one in known.changes()] == [True]


@pytest.mark.parametrize("name", ["another function", "other code"])
def test_a_module_that_was_changed_before_it_was_seen_is_named(helper, name):
    CHANGES[name][0](helper)
    assert watched()[1] == ["helper_of_variants.scale (other than in its file)"]


def test_a_module_may_bind_its_own_names_anew_and_give_its_constants_values(helper):
    known, _ = watched()
    helper.LIMIT, helper.scale = 4, slow
    assert known.changes("another") == ["helper_of_variants.scale (replaced)"]
    assert known.changes("helper_of_variants") == []
    assert known.changes("another") == []  # from then on it is the module's own


def test_a_module_in_anothers_place_is_named_and_a_folder_is_not(helper, monkeypatch):
    known, _ = watched()
    folder = types.ModuleType("folder")
    folder.__path__ = []
    monkeypatch.setitem(sys.modules, "helper_of_variants.folder", folder)
    assert known.adopt() == []
    monkeypatch.setitem(sys.modules, "helper_of_variants.fast", types.ModuleType("fast"))
    assert "helper_of_variants.fast (a module of no file)" in known.adopt()
