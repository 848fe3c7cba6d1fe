"""Formulas of the YAML files: arithmetic and comparison over names, and nothing else.

Allowed: numbers, names, `+ - * / // % **` (powers bounded), comparisons, `and or not`,
`a if c else b`, `min(..)`, `max(..)`; texts, True, False and None only beside a comparison.
`inf` is infinity. Everything is checked when a file is loaded, so a formula cannot fail later for
its form; evaluated by `simpleeval` with only these operators and functions.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import simpleeval

from runner.model import Refusal
from runner.typed import nearest

LONGEST = 500  # characters
BIGGEST = 2.0**256  # of a whole number: beyond it the formula is a mistake, and arithmetic gets slow
FUNCTIONS = {"min": min, "max": max}
CONSTANTS = {"inf": math.inf}
_kept = threading.local()


def _bounded(function: Any) -> Any:
    """The operator of numbers, refusing whole ones that would grow without end."""

    def apply(*operands: Any) -> Any:
        if not all(isinstance(each, (int, float)) for each in operands):
            raise TypeError("texts and lists have no arithmetic")  # `'q' * 2**40` is a text without end
        result = function(*operands)
        if isinstance(result, int) and abs(result) > BIGGEST:
            raise OverflowError("the number gets too large")
        return result

    return apply


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > 256 or abs(base) > 2**64:
        raise OverflowError(f"{base}**{exponent} is too large a power")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError(f"{base}**{exponent} is not a real number")
    return result


OPERATORS: dict[type, Any] = {
    ast.Add: _bounded(operator.add), ast.Sub: _bounded(operator.sub), ast.Mult: _bounded(operator.mul),
    ast.Div: _bounded(operator.truediv), ast.FloorDiv: _bounded(operator.floordiv),
    ast.Mod: _bounded(operator.mod), ast.Pow: _bounded(_power),
    ast.USub: _bounded(operator.neg), ast.UAdd: _bounded(operator.pos), ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
PLAIN = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Name, ast.expr_context, ast.boolop)
FORBIDDEN = {
    ast.Attribute: "attribute access", ast.Subscript: "subscripts", ast.Call: "calls other than min and max",
    ast.Lambda: "lambda", ast.JoinedStr: "f-strings", ast.NamedExpr: "assignment", ast.Starred: "stars",
    ast.List: "lists", ast.Tuple: "tuples", ast.Dict: "mappings", ast.Set: "sets",
    ast.ListComp: "loops", ast.SetComp: "loops", ast.DictComp: "loops", ast.GeneratorExp: "loops",
    ast.BitAnd: "& (write 'and')", ast.BitOr: "| (write 'or')", ast.BitXor: "^ (a power is **)",
    ast.LShift: "<<", ast.RShift: ">>", ast.Invert: "~", ast.MatMult: "@", ast.In: "'in'",
    ast.NotIn: "'not in'", ast.Is: "'is'", ast.IsNot: "'is not'",
}  # fmt: skip


def fault(text: str, known: Iterable[str]) -> str:
    """What is wrong with a formula over these names, as half a sentence; empty when nothing is."""
    try:
        _parse(text)
    except ValueError as error:
        return f"{text[:60]!r}: {error}"
    known = [*known, *CONSTANTS]
    unknown = [name for name in names(text) if name not in known]
    return f"{text!r}: unknown name {unknown[0]!r}{nearest(unknown[0], known)}" if unknown else ""


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a formula that was checked by `fault`: a number or a truth value.

    Raises Refusal with one sentence where arithmetic fails (a division by zero, a text times a number).
    """
    wrong = fault(text, values)
    if wrong:
        raise Refusal(f"the formula {wrong}")
    try:
        return _evaluator({**CONSTANTS, **values}).eval(text, _parse(text))
    except (ArithmeticError, TypeError, ValueError, simpleeval.InvalidExpression) as error:
        point = _point(text, values) or "any point"
        raise Refusal(f"the formula {text!r} has no value at {point}: {error}") from error


def _evaluator(known: dict[str, Any]) -> simpleeval.SimpleEval:
    """This thread's evaluator over these names: making one takes longer than most formulas."""
    if not hasattr(_kept, "evaluator"):
        _kept.evaluator = simpleeval.SimpleEval(OPERATORS, FUNCTIONS)
    _kept.evaluator.names = known
    return _kept.evaluator


def amount(text: str, values: Mapping[str, Any], where: str) -> float:
    """The value of a formula that counts something (operations, bytes): a finite number from 0 on.

    Raises Refusal with one sentence, which begins with `where`.
    """
    try:
        value = evaluate(text, values)
        fits = _is_number(value) and 0 <= float(value) < math.inf
    except (Refusal, OverflowError) as error:
        raise Refusal(f"{where}: {error}") from error
    if not fits:
        raise Refusal(f"{where}: {gives(text, value, values)}; a finite number from 0 on is needed")
    return float(value)


def gives(text: str, value: Any, values: Mapping[str, Any]) -> str:
    """Half a sentence: what a formula gives, and where."""
    point = _point(text, values)
    return f"the formula {text!r} gives {value!r}" + (f" at {point}" if point else "")


def _point(text: str, values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values[name]!r}" for name in names(text) if name in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@functools.lru_cache(4096)
def names(text: str) -> tuple[str, ...]:
    """The names a formula uses, in the order they appear. Raises ValueError where `fault` finds a fault."""
    tree = _parse(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
    return tuple(dict.fromkeys(found))


@functools.lru_cache(4096)
def _parse(text: str) -> ast.expr:
    """The checked tree. Raises ValueError with half a sentence."""
    if len(text) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, MemoryError, RecursionError, ValueError) as error:
        raise ValueError(f"not a formula ({getattr(error, 'msg', None) or 'nested too deep'})") from error
    _allow(tree, beside_comparison=False)
    return tree


def _allow(node: ast.AST, beside_comparison: bool) -> None:
    """Raises ValueError on the first construct that a formula may not have."""
    if isinstance(node, ast.Constant):
        return _allow_constant(node.value, beside_comparison)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        if node.keywords or len(node.args) < 2 or any(isinstance(a, ast.Starred) for a in node.args):
            raise ValueError(f"{node.func.id} takes two or more plain arguments")
        children: Iterable[ast.AST] = node.args
    elif isinstance(node, PLAIN) or type(node) in OPERATORS:
        children = ast.iter_child_nodes(node)
    else:
        raise ValueError(f"a formula may not have {FORBIDDEN.get(type(node), type(node).__name__)}")
    for child in children:
        _allow(child, isinstance(node, ast.Compare))


def _allow_constant(value: Any, beside_comparison: bool) -> None:
    if isinstance(value, (bool, str)) or value is None:
        if not beside_comparison and not isinstance(value, bool):
            raise ValueError(f"{value!r} may only stand beside a comparison")
    elif not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is no number")
    elif isinstance(value, int) and value > BIGGEST:
        raise ValueError("a number is too large")
