"""Figures from synthetic samples with known answers."""

import math
import random

import pytest

from runner.measure.statistics import quantile, student_t, summarize


def test_figures_of_a_known_sample():
    summary = summarize([4.0, 1.0, 3.0, 2.0, 10.0])
    assert (summary.trials, summary.mean, summary.median, summary.min) == (5, 4.0, 3.0, 1.0)
    assert summary.p20 == pytest.approx(1.8)
    assert summary.p80 == pytest.approx(5.2)
    assert summary.std == pytest.approx(math.sqrt(50 / 4))


def test_one_sample_has_no_spread():
    summary = summarize([2.0])
    assert (summary.mean, summary.std, summary.mean_ci, summary.median_ci) == (2.0, None, None, None)


def test_no_samples_is_an_error():
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


@pytest.mark.parametrize(
    ("freedom", "table"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (29, 2.045), (1000, 1.962)],
)
def test_student_t_against_the_printed_table(freedom, table):
    assert student_t(freedom) == pytest.approx(table, rel=0.004)


def test_quantile_interpolates():
    assert quantile([0.0, 10.0], 0.25) == 2.5


@pytest.mark.parametrize("figure", ["mean", "median"])
def test_intervals_hold_the_truth_about_as_often_as_they_claim(figure):
    draw = random.Random(1)
    hits = 0
    for _ in range(1000):
        summary = summarize([draw.gauss(50.0, 5.0) for _ in range(20)])
        low, high = getattr(summary, f"{figure}_ci")
        hits += low <= 50.0 <= high
    assert 930 <= hits <= 995
