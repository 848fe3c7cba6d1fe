"""The modules that variants come from: who changes another's could make its baseline slower."""

from __future__ import annotations

import ast
import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

_Space = dict[str, Any]


class Modules:
    """Those in `sys.modules` of no installed package and not of the runner, as they were first seen."""

    def __init__(self, installed: tuple[str, ...]) -> None:
        self._installed = installed
        self._known: dict[str, list[tuple[str, Any, str, Any, tuple]]] = {}

    def adopt(self) -> list[str]:
        """Take in what was imported since; what of it is no longer as its file has it."""
        found: list[str] = []
        for name, module in list(sys.modules.items()):
            if name not in self._known and self._foreign(name, module):
                self._known[name] = list(_members(name, module))
                found += [f"{name}.{function} (other than in its file)" for function in _edited(module)]
            elif name.rpartition(".")[0] in self._known and _of_nothing(module):
                found.append(f"{name} (a module of no file)")
        return found

    def changes(self, own: str = "") -> list[str]:
        """What another variant would find changed. One's `own` module may bind its names anew."""
        found = []
        for module, members in self._known.items():
            for place, (words, space, name, value, inside) in enumerate(members):
                bound = vars(space).get(name)
                if bound is not value and module == own:
                    members[place] = words, space, name, bound, _inside(bound)
                elif bound is not value or _inside(value) != inside:
                    found.append(f"{words} (replaced)")
        return found

    def _foreign(self, name: str, module: Any) -> bool:
        file = getattr(module, "__file__", None)
        own = name == "__main__" or name.partition(".")[0] == "runner"
        return isinstance(file, str) and not own and not file.startswith(self._installed)


def _of_nothing(module: Any) -> bool:
    """Whether a module is of no file, and no folder of modules either."""
    return getattr(module, "__file__", None) is None and not hasattr(module, "__path__")


def _members(name: str, module: types.ModuleType) -> Iterator[tuple[str, Any, str, Any, tuple]]:
    """What can be called in a module and in its classes, and what is inside of that."""
    classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == name]
    for space in (module, *classes):
        for key, value in vars(space).items():
            if not key.startswith("__") and (callable(value) or isinstance(value, staticmethod)):
                yield f"{space.__name__}.{key}", space, key, value, _inside(value)


def _inside(value: Any) -> tuple:
    """By identity: the code of a function, or of that which an object such as Triton's launcher holds."""
    held = getattr(value, "__dict__", {})
    function = held.get("fn", getattr(value, "__func__", value))
    code = getattr(function, "__code__", None), getattr(function, "__defaults__", None)
    return (*map(id, code), id(held.get("run")))


def _edited(module: types.ModuleType) -> list[str]:
    """Functions of a module that are bound once and without decorators, and whose code is not its file's."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        with open(module.__file__, "rb") as file:
            text = file.read()
        tree, code = ast.parse(text), compile(text, module.__file__, "exec", dont_inherit=True)
        written = {c.co_name: c for c in code.co_consts if isinstance(c, types.CodeType)}
        return [
            name for name in _plain(tree) if getattr(vars(module).get(name), "__code__", 0) != written[name]
        ]
    return []


def _plain(tree: ast.Module) -> list[str]:
    bound = [
        each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]
    bound += [
        name for each in ast.walk(tree) if isinstance(each, (ast.Global, ast.Delete)) for name in _names(each)
    ]
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    names = [each.name for each in functions]
    return [
        f.name for f in functions if not f.decorator_list and names.count(f.name) == 1 and f.name not in bound
    ]


def _names(statement: ast.Global | ast.Delete) -> list[str]:
    if isinstance(statement, ast.Global):
        return statement.names
    return [target.id for target in statement.targets if isinstance(target, ast.Name)]
