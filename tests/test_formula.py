"""Formulas: what they may hold, what they are worth, and that they always end."""

import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from runner.model import Refusal
from runner.op import formula

KNOWN = {"rows": 4, "cols": 8, "p": 2.0, "dtype": "float32"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5*rows*cols", 160),
        ("(rows + 1) // 2 - cols % 3", 0),
        ("rows ** 2 / 2", 8.0),
        ("-rows", -4),
        ("rows < cols <= 8", True),
        ("not rows == 4 or dtype == 'float32' and cols != 8", False),
        ("1 if rows > 4 else 2", 2),
        ("max(rows, cols, 3) - min(rows, cols)", 4),
        ("p == inf", False),
        ("inf", math.inf),
        ("true_rows if False else rows", None),
        ("65536", 65536),
    ],
)
def test_values(text, value):
    if value is None:
        assert "unknown name 'true_rows'" in formula.fault(text, KNOWN)
    else:
        assert formula.fault(text, KNOWN) == ""
        assert formula.evaluate(text, KNOWN) == value


@pytest.mark.parametrize(
    "text",
    [
        "rows.bit_length()", "rows.real", "rows[0]", "[rows][0]", "open('x')", "__import__('os')",
        "lambda: 1", "[r for r in (1, 2)]", "'a' * 1000000", "f'{rows}'", "(rows := 3)", "rows & 1",
        "rows ^ 2", "~rows", "1 << 100000", "rows @ cols", "rows in (1, 2)", "rows is cols", "min(rows)",
        "min(*rows)", "None", "min(rows, cols, key=abs)", "max", "rows cols", "", "1;2", "rows = 3",
        "import os", "1j", "b'x' == rows", "eval('1')", "min.__call__(1, 2)",
        "(" * 400 + "1" + ")" * 400, "9" * 400, "1+" * 400 + "1",
    ],
)  # fmt: skip
def test_what_is_no_formula(text):
    assert formula.fault(text, KNOWN)
    with pytest.raises(Refusal):
        formula.evaluate(text, KNOWN)


def test_the_nearest_name_is_offered():
    assert formula.fault("rowz * 2", KNOWN) == "'rowz * 2': unknown name 'rowz'; did you mean 'rows'?"


def test_a_forbidden_construct_is_named():
    assert "a formula may not have attribute access" in formula.fault("rows.real", KNOWN)


@pytest.mark.parametrize("text", ["9**9**9", "2**-999999999", "(2**200)**200", "2**255 * 2**255", "1.5**1e9"])
def test_no_formula_takes_long(text):
    began = time.monotonic()
    with pytest.raises(Refusal):
        formula.evaluate(text, KNOWN)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("text", ["rows / (cols - 8)", "rows % (cols - 8)", "dtype < 3", "(0 - rows) ** 0.5"])
def test_no_value_is_a_sentence_with_the_point(text):
    with pytest.raises(Refusal, match=r"has no value at .*="):
        formula.evaluate(text, KNOWN)


@pytest.mark.parametrize("text", ["dtype * 2", "dtype * 2**60", "dtype % 3", "dtype + dtype", "-dtype"])
def test_texts_have_no_arithmetic(text):
    with pytest.raises(Refusal, match="dtype='float32': texts and lists have no arithmetic"):
        formula.evaluate(text, KNOWN)


def test_amounts():
    assert formula.amount("2*rows", KNOWN, "place") == 8.0
    assert formula.amount("0", KNOWN, "place") == 0.0
    for text in ("-rows", "inf", "inf - inf", "rows > 3", "dtype"):
        with pytest.raises(Refusal, match=r"^place: .*; a finite number from 0 on is needed$"):
            formula.amount(text, KNOWN, "place")
    with pytest.raises(Refusal, match=r"^place: the formula 'rows / 0' has no value at rows=4"):
        formula.amount("rows / 0", KNOWN, "place")


def test_names_in_order_without_functions():
    assert formula.names("max(cols, rows) * cols") == ("cols", "rows")


def test_threads_have_their_own_names():
    def total(value):
        return sum(formula.evaluate("n + n*n", {"n": value}) for _ in range(500))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(total, range(40))) == [500 * (n + n * n) for n in range(40)]
