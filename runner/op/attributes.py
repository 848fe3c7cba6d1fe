"""Values of an op's attributes: of words only the declared ones, of numbers any of the declared kind."""

from __future__ import annotations

from typing import Any

from runner.typed import nearest

Values = tuple[Any, ...]


def chosen(asked: Any, declared: Values) -> tuple[Values, list[str]]:
    """The values of one attribute, each once, and what is wrong with them.

    `all` takes what is declared; a list gives several values, unless it is itself a declared one.
    """
    if asked == "all" and "all" not in declared:
        return declared, []
    several = isinstance(asked, list) and asked not in declared
    values: list[Any] = []
    for value in [_as_declared(each, declared) for each in (asked if several else [asked])]:
        if not _among(value, values):
            values.append(value)
    faults = [fault for value in values if (fault := _fault(value, declared))]
    return tuple(values), faults if values else ["[]: an empty list; give at least one value"]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _among(value: Any, values: Any) -> bool:
    """Membership where true is not 1."""
    return any(value == each and isinstance(value, bool) is isinstance(each, bool) for each in values)


def _as_declared(value: Any, declared: Values) -> Any:
    """2 where 2.0 is declared is 2.0: the same case has the same name."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and all(isinstance(each, float) for each in declared) else value


def _fault(value: Any, declared: Values) -> str:
    if value != value:
        return f"{value}: not a number, and a case could not be told from itself"
    numbers = [each for each in declared if _is_number(each)]
    if _among(value, declared) or (_is_number(value) and any(isinstance(each, float) for each in numbers)):
        return ""
    if numbers and _is_number(value):
        return "" if isinstance(value, int) else f"{value}: a whole number is needed"
    return f"{value}: there is no such value{nearest(value, map(str, declared))}"
