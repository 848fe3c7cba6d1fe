"""Each sentence fires on the trouble it names and stays silent on a quiet row."""

import random

import pytest

from runner.measure import noise
from runner.measure.noise import notes, spearman
from runner.measure.statistics import summarize


def quiet(count=60, middle=500.0, share=0.004, seed=1):
    draw = random.Random(seed)
    return [draw.gauss(middle, share * middle) for _ in range(count)]


def only(found, start):
    """`found` is exactly one sentence and begins so."""
    assert len(found) == 1, found
    assert found[0].startswith(start), found[0]
    return found[0]


def test_a_quiet_row_has_no_note():
    steady = {"sm_mhz": [1980, 1965, 1980], "held": 60, "stop_reason": "precision", "precision": 0.005}
    assert notes(quiet(), **steady) == []


@pytest.mark.parametrize("samples", [[5.0], [5.0, 5.1], [0.0] * 30, [7.0] * 30])
def test_few_or_equal_samples_have_no_note(samples):
    assert notes(samples) == []


def test_wide_spread():
    sentence = only(notes(quiet(share=0.06)), "the spread is wide: the middle 60 % of the times span ")
    assert 7 <= float(sentence.partition("span ")[2].split()[0]) <= 13  # 1.68 standard deviations
    assert notes(quiet(share=0.02)) == []


def test_a_tiny_kernel_is_not_noisy_within_the_events_resolution():
    draw = random.Random(1)
    assert notes([draw.choice([2.9, 3.0, 3.1, 3.2]) for _ in range(50)]) == []


def test_median_and_mean_apart():
    assert "median -4 % from the mean" in notes([100.0] * 10 + [150.0])
    assert notes([100.0] * 10 + [115.0]) == []


@pytest.mark.parametrize(("step", "verb"), [(0.0005, "rose"), (-0.0005, "fell")])
def test_drift(step, verb):
    samples = [x * (1 + step * i) for i, x in enumerate(quiet())]
    assert only(notes(samples), f"the times {verb} by ").endswith(
        "from the first third of the trials to the last"
    )


def test_a_drift_too_small_to_care_is_silent():
    samples = [500.0 + 0.05 * i for i in range(60)]  # certain, and 0.4 %
    assert spearman(samples) == pytest.approx(1.0)
    assert notes(samples) == []


@pytest.mark.parametrize("count", [12, 20, 60, 300])
@pytest.mark.parametrize(
    "start", ["the times rose", "the times fell", "the times fall into", "times are far"]
)
def test_white_noise_is_not_called_drift_groups_or_outliers(count, start):
    fired = sum(any(start in s for s in notes(quiet(count, share=0.02, seed=seed))) for seed in range(400))
    assert fired <= 4


def test_two_groups():
    draw = random.Random(1)
    samples = [draw.choice([500.0, 500.0, 515.0]) + draw.gauss(0, 0.5) for _ in range(60)]
    sentence = only(notes(samples), "the times fall into two groups: ")
    numbers = [float(word) for word in sentence.split() if word.replace(".", "").isdigit()]
    assert numbers == [33, pytest.approx(500, abs=0.5), 27, pytest.approx(515, abs=0.5)]
    assert notes([500.0 + (x - 500.0) / 10 for x in samples]) == []  # 0.3 % apart


def test_outliers_are_counted():
    samples = quiet()
    samples[7] = samples[20] = samples[41] = 560.0
    assert only(notes(samples), "3 of 60 times are far above the rest, the worst 12 % over the median")
    samples[20] = samples[41] = 500.0
    assert notes(samples) == []  # one of sixty


def test_outliers_above_a_coarse_tick():
    assert only(notes([500.0] * 57 + [530.0] * 3), "3 of 60 times are far above the rest")


def test_clock_moved():
    assert only(
        notes(quiet(), sm_mhz=[1980, None, 1755, 1980]), "the SM clock moved between 1755 and 1980 MHz"
    )
    assert notes(quiet(), sm_mhz=[None, None]) == []


def test_throttled_names_each_reason_once():
    sentence = only(notes(quiet(), throttle=["power limit", "heat", "power limit"]), "the card held its")
    assert sentence.endswith(": power limit, heat")


def test_launch_latency():
    assert notes(quiet(), held=57) == ["launch latency is in 3 of 60 times: the host was slower"]


def test_budget_ran_out():
    samples = quiet(share=0.02)
    sentence = only(notes(samples, stop_reason="budget", precision=0.001), "the time budget ran out before")
    assert sentence.endswith(" %, 0.1 % was asked for")
    assert notes(samples, stop_reason="budget", precision=None) == []
    only(
        notes(samples, stop_reason="max_trials", precision=0.001), "the most trials allowed were taken before"
    )
    lone = notes([5.0], stop_reason="budget", precision=0.005)
    assert "interval is unknown, 0.5 % was asked for" in lone[0]


def test_the_summary_may_be_given():
    samples = quiet(share=0.06)
    assert notes(samples, summary=summarize(samples)) == notes(samples)


def test_no_sentence_breaks_the_note_column():
    """`note` joins sentences with semicolons."""
    found = notes(
        [x * (1 + 0.002 * i) for i, x in enumerate(quiet(share=0.05))],
        sm_mhz=[1980, 1000],
        throttle=["heat"],
        held=1,
        stop_reason="budget",
        precision=0.005,
    )
    assert len(found) >= 5
    assert not any(";" in s or "\n" in s for s in found)


def test_ranks_share_ties():
    assert spearman([1.0, 1.0, 1.0]) == 0.0
    assert noise._ranks([3.0, 1.0, 3.0, 2.0]) == [2.5, 0.0, 2.5, 1.0]
    assert spearman([1.0, 2.0, 2.0, 3.0]) == pytest.approx(0.9486833)
