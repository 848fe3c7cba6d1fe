"""The stopping rules on synthetic samples whose truth is known."""

import itertools
import math
import random
from statistics import NormalDist, fmean, median

import pytest

from runner.measure.stopping import Exactly, Precision, Rounds, half_width, inflation, lag1

TRUTH = 100.0


def white(share, seed):
    draw = random.Random(seed)
    while True:
        yield draw.gauss(TRUTH, share * TRUTH)


def correlated(share, r, seed):
    """First-order: each sample remembers `r` of the one before."""
    draw = random.Random(seed)
    off = draw.gauss(0, share * TRUTH)
    while True:
        yield TRUTH + off
        off = r * off + draw.gauss(0, share * TRUTH * math.sqrt(1 - r * r))


def bimodal(seed):
    draw = random.Random(seed)
    while True:
        yield (98.0 if draw.random() < 0.5 else 102.0) + draw.gauss(0, 0.3)


def heavy(seed):
    """A floor, and delays above it: many short, few long."""
    draw = random.Random(seed)
    while True:
        yield 98.0 + 2.0 * draw.expovariate(1)


def drifting(seed):
    draw = random.Random(seed)
    for i in itertools.count():
        yield TRUTH * (1 + 0.001 * i) + draw.gauss(0, 0.1)


def take(source, min_trials=20, max_trials=100_000, precision=0.005):
    rule, samples = Precision(precision, min_trials, max_trials, math.inf), []
    while True:
        samples.append(next(source))
        reason = rule.done(samples, 0.0)
        if reason:
            return samples, reason


def analytic(share, precision=0.005):
    return (NormalDist().inv_cdf(0.975) * share / precision) ** 2


def test_constant_samples_stop_at_min_trials():
    samples, reason = take(itertools.repeat(5.0))
    assert (len(samples), reason) == (20, "precision")


def test_all_zero_is_precise():
    assert take(itertools.repeat(0.0))[1] == "precision"


@pytest.mark.parametrize("min_trials", [3, 5, 20, 100])
def test_never_before_min_trials_and_at_once_when_there_is_no_noise(min_trials):
    assert len(take(itertools.repeat(1.0), min_trials)[0]) in (min_trials, min_trials + 1)
    assert len(take(white(0.0001, 1), min_trials)[0]) >= min_trials


@pytest.mark.parametrize("share", [0.01, 0.02, 0.03])
def test_white_noise_takes_about_the_analytic_number(share):
    counts = [len(take(white(share, seed))[0]) for seed in range(60)]
    assert min(counts) >= 20
    assert max(20, analytic(share)) <= median(counts) <= max(25, 1.5 * analytic(share))


@pytest.mark.parametrize(
    ("source", "least"),
    [
        (lambda seed: white(0.01, seed), 0.93),
        (lambda seed: white(0.02, seed), 0.93),
        (bimodal, 0.93),
        (lambda seed: correlated(0.02, 0.5, seed), 0.93),
        (heavy, 0.87),  # skewed samples have not shown their tail yet when they look narrow
    ],
    ids=["white 1 %", "white 2 %", "bimodal", "correlated", "heavy tail"],
)
def test_the_interval_at_the_stop_holds_the_truth(source, least):
    hits = 0
    for seed in range(500):
        samples, _ = take(source(seed))
        hits += abs(fmean(samples) - TRUTH) <= half_width(samples)
    assert hits / 500 >= least


def test_looking_after_every_sample_would_stop_too_early():
    """The point of growing counts and two looks: an eager rule's means miss more often."""

    def eager(seed):
        source = white(0.01, seed)
        samples = list(itertools.islice(source, 5))
        while half_width(samples) > 0.005 * fmean(samples):
            samples.append(next(source))
        return samples

    def misses(runs):
        return sum(abs(fmean(samples) - TRUTH) > half_width(samples) for samples in runs)

    assert misses(eager(s) for s in range(500)) > 1.5 * misses(take(white(0.01, s))[0] for s in range(500))


def test_drift_goes_on_to_the_end():
    samples, reason = take(drifting(1), max_trials=400)
    assert (len(samples), reason) == (400, "max_trials")


def test_budget_stops_but_not_before_three():
    rule = Precision(0.005, 20, 1000, 2.0)
    noisy = list(itertools.islice(white(0.1, 1), 10))
    assert rule.done(noisy[:2], 60.0) == ""
    assert rule.done(noisy[:3], 60.0) == "budget"
    assert rule.done(noisy[:9], 1.9) == ""
    assert rule.done(noisy, 2.0) == "budget"


def test_precision_counts_before_budget():
    rule = Precision(0.005, 20, 1000, 2.0)
    samples = [1.0] * 20
    reasons = [rule.done(samples[:n], 0.1 if n < 20 else 9.0) for n in range(1, 21)]
    assert reasons == [""] * 19 + ["precision"]


def test_a_widened_interval_is_not_called_precise():
    rule = Precision(0.005, 20, 10_000, 100.0)
    samples = [1.0] * 20
    for n in range(1, 21):
        reason = rule.done(samples[:n], 0.0)
    assert reason == "precision"
    samples += [1.0, 2.0, 1.0, 3.0]
    assert rule.done(samples, 0.0) == ""
    assert rule.done(samples, 200.0) == "budget"


def test_exactly_is_exact():
    rule = Exactly(7)
    assert [rule.done([1.0] * n, 1e9) for n in (1, 6, 7, 8)] == ["", "", "trials", "trials"]


def run_rounds(rules, sources, seconds_per_round=0.0):
    rounds, samples, spent = Rounds(rules), [[] for _ in sources], 0.0
    while rounds.another(samples, spent):
        for series, source in zip(samples, sources):
            series.append(next(source))
        spent += seconds_per_round
    return rounds, [len(series) for series in samples]


def test_a_quiet_variant_waits_for_a_noisy_one():
    rules = [Precision(0.005, 20, 10_000, 1e9) for _ in range(2)]
    rounds, counts = run_rounds(rules, [itertools.repeat(1.0), white(0.03, 3)])
    assert counts[0] == counts[1] > 80
    assert rounds.reasons == ["precision", "precision"]


def test_the_set_shares_its_budget_and_each_reason_is_its_own():
    rules = [Precision(0.005, 20, 10_000, 1.0) for _ in range(2)]
    rounds, counts = run_rounds(rules, [itertools.repeat(1.0), white(0.5, 3)], seconds_per_round=0.05)
    assert counts == [40, 40]  # 2 variants x 1 s at 50 ms a round
    assert rounds.reasons == ["precision", "budget"]


def test_rounds_of_exactly():
    rounds, counts = run_rounds([Exactly(5), Exactly(5)], [white(0.1, 1), white(0.1, 2)], 100.0)
    assert (counts, rounds.reasons) == ([5, 5], ["trials", "trials"])


def test_no_rounds_without_variants():
    assert not Rounds([]).another([], 0.0)


def test_half_width_is_the_textbook_one_for_independent_samples():
    samples = [1.0, 2.0, 3.0]  # too few for a correlation: t = 4.303, s = 1
    assert half_width(samples) == pytest.approx(4.302653 / math.sqrt(3))
    assert half_width([1.0]) == math.inf


def test_inflation_knows_a_first_order_process():
    for r in (0.3, 0.6, 0.8):
        samples = list(itertools.islice(correlated(0.01, r, 1), 20_000))
        assert lag1(samples) == pytest.approx(r, abs=0.03)
        known = (1 + r) / (1 - r)
        assert 0.8 * known < inflation(samples) < 3 * known  # ten batches are few: their spread is rough


def test_batch_means_see_a_slow_wave_under_fast_noise():
    draw = random.Random(1)
    samples = [math.sin(i / 40) + draw.gauss(0, 2) for i in range(400)]
    r = lag1(samples)
    assert inflation(samples) > 1.5 * (1 + r) / (1 - r)


def test_alternating_samples_do_not_narrow_the_interval():
    assert inflation([1.0, 2.0] * 50) == 1.0
