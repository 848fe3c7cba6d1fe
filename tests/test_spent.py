"""Where a run's time goes: each second in one part of one row, from the steps that are announced."""

from __future__ import annotations

from collections import Counter

import pytest

from runner.parent.spent import Spent, words_of


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def step(stage, what="", index=0):
    return {"stage": stage, "what": what or stage, "index": index}


def test_each_second_is_in_one_part_of_one_row(clock):
    spent, rows = Spent(clock), [Counter(), Counter()]
    told = [  # what begins, and how long it lasts
        (lambda: spent.on("start"), 2.0),
        (lambda: spent.on("ceilings"), 0.25),
        (lambda: spent.on("inputs", row=rows[0]), 0.5),  # the judge evaluates the definition
        (lambda: spent.step(step("inputs", index=None), None), 0.25),  # still for that row
        (lambda: spent.step(step("build"), rows[0]), 1.0),
        (lambda: spent.step(step("check"), rows[0]), 0.125),
        (lambda: spent.step(step("check", "check at scale 10000"), rows[0]), 0.5),
        (lambda: spent.on("inputs", row=rows[1]), 0.25),
        (lambda: spent.step(step("build"), rows[1]), 0.0),
        (lambda: spent.step(step("check"), rows[1]), 0.25),
        *[(lambda i=i: spent.step(step("measure", f"trial {i}"), rows[i % 2]), 0.125) for i in range(6)],
        (lambda: spent.on(), 0.5),
    ]
    for begin, seconds in told:
        begin()
        clock.now += seconds
    assert spent.words() == (
        "6.4 s: start 2.0 s, ceilings 0.2 s, inputs and reference 1.0 s, build 1.0 s, "
        "check 0.9 s of which extras 0.5 s, timing 0.8 s, rest 0.5 s"
    )
    assert rows[0] == {"inputs": 0.75, "build": 1.0, "check": 0.625, "extras": 0.5, "timing": 0.375}
    assert rows[1] == {"inputs": 0.25, "build": 0.0, "check": 0.25, "timing": 0.375}
    whole = sum(seconds for part, seconds in spent.total.items() if part != "extras")
    assert whole == sum(seconds for _, seconds in told)


def test_a_row_in_words(clock):
    row = {"inputs": 0.02, "build": 0.31, "check": 0.45, "extras": 0.3, "timing": 0.52}
    assert words_of(row, cached=True) == (
        "inputs 0.02 s, build 0.31 s (cached), check 0.45 s of which extras 0.30 s, timing 0.52 s"
    )
    assert words_of({"inputs": 0.02, "build": 4.0}, cached=False) == "inputs 0.02 s, build 4.00 s"
    assert words_of({}) == ""


def test_a_run_that_asked_nothing_of_a_worker_says_nothing(clock):
    spent = Spent(clock)
    clock.now += 1
    assert spent.words() == ""


def test_a_part_that_is_unknown_is_the_rest(clock):
    spent = Spent(clock)
    spent.step(step("a later stage"), Counter())
    clock.now += 1
    spent.on("start")
    assert spent.total["rest"] == 1
