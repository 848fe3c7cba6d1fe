"""Verdicts on simulated runs whose truth is known: what is the same must not be told apart, 3 % must."""

import functools
import itertools
import random
from statistics import NormalDist

import pytest

from runner.compare import ratio
from runner.compare.ratio import Side, compare, of_interval, of_samples
from runner.measure.statistics import student_t
from runner.measure.stopping import half_width
from tests.test_stopping import correlated, heavy, take, white

PAIRS = 200
MEASURED = 0.72  # of what is allowed for between processes: the worst of five off by 0.3 % are 0.18 % each
NOISES = {
    "white 0.2 %": lambda seed: white(0.002, seed),
    "white 2 %": lambda seed: white(0.02, seed),
    "neighbours alike": lambda seed: correlated(0.01, 0.5, seed),
    "delays above a floor": heavy,
}


@functools.cache
def samples_of(noise, seed):
    return take(NOISES[noise](seed), max_trials=2000)[0]


def run(noise, mean_us, seed):
    """A run of one row as the runner takes it: until precise, in a process that is off by its own share."""
    draw = random.Random(f"process {seed}")
    a = b = Side(mean_us, 0, 9, 20)
    share = MEASURED * ratio.process_error(a, b) / 2**0.5  # of two such processes each
    factor = mean_us / 100 * (1 + draw.gauss(0, share))
    return of_samples([factor * sample for sample in samples_of(noise, seed)])


def verdicts(noise, mean_us, slower):
    for seed in range(PAIRS):
        yield compare(run(noise, mean_us, seed), run(noise, slower * mean_us, PAIRS + seed)).verdict


@pytest.mark.parametrize("mean_us", [5, 60, 2000])
@pytest.mark.parametrize("noise", NOISES)
def test_at_most_one_false_verdict_in_200(noise, mean_us):
    found = list(verdicts(noise, mean_us, slower=1))
    assert found.count("slower") + found.count("faster") <= 1


@pytest.mark.parametrize("mean_us", [50, 2000])
@pytest.mark.parametrize("noise", NOISES)
def test_three_percent_above_50_us_is_found_every_time(noise, mean_us):
    assert set(verdicts(noise, mean_us, slower=1.03)) == {"slower"}
    assert set(verdicts(noise, mean_us, slower=1 / 1.03)) == {"faster"}


def test_long_quiet_kernels_are_the_same_and_tiny_ones_cannot_be_told():
    assert set(verdicts("white 0.2 %", 2000, slower=1)) == {"same"}
    assert set(verdicts("white 0.2 %", 5, slower=1)) <= {"ambiguous", "same"}


def test_the_interval_holds_the_ratio_as_often_as_it_says():
    held = 0
    for seed in range(1000):
        found = compare(run("white 0.2 %", 100, seed), run("white 0.2 %", 100, 1000 + seed))
        held += found.low <= 1 <= found.high
    assert held >= 990


def test_an_interval_stands_in_for_samples():
    samples = list(itertools.islice(white(0.01, 1), 40))
    half, mean = half_width(samples), sum(samples) / 40
    raw, kept = of_samples(samples), of_interval(mean, mean - half, mean + half, 40)
    assert kept.error == pytest.approx(raw.error, rel=0.05) and kept.mean == pytest.approx(raw.mean)


def clocks(a, b, slower=1.06, **more):
    quiet = {"error": 0.01, "freedom": 50, "trials": 50}
    return compare(Side(100, sm_mhz=a, **quiet), Side(100 * slower, sm_mhz=b, **quiet, **more))


def test_a_lower_clock_may_explain_a_slower_time():
    assert clocks(1980, 1980).verdict == "slower"
    found = clocks(1980, 1860)
    assert found.verdict == "ambiguous" and "1980 and 1860 MHz, which may be all of it" in found.why
    assert clocks(1980, 1860, slower=1.2).verdict == "slower"  # more than any clock explains
    assert clocks(1860, 1980).verdict == "slower"  # although the clock was higher
    assert clocks(1980, 1965).why == ""  # one step


def test_a_faster_time_under_a_higher_clock():
    assert clocks(1860, 1980, slower=1 / 1.06).verdict == "ambiguous"
    assert clocks(1980, 1860, slower=1 / 1.06).verdict == "faster"


def test_throttling_in_one_run_only():
    found = clocks(1980, 1980, slower=1.04, throttled="sw_power_cap")
    assert found.verdict == "ambiguous" and "held back in B (sw_power_cap)" in found.why
    assert clocks(1980, 1980, slower=1.5, throttled="sw_power_cap").verdict == "slower"


def test_few_trials_decide_nothing():
    found = compare(of_samples([1.0, 1.01, 1.0]), of_samples([2.0, 2.01, 2.0]))
    assert found.verdict == "ambiguous" and found.why == "fewer than 6 trials: run both with more"


def test_samples_without_any_spread():
    assert compare(of_samples([5.0] * 30), of_samples([8.0] * 30)).verdict == "slower"


def test_an_interval_beyond_a_factor_of_two_is_said_in_words():
    scattered = ratio.of_samples([1.0, 40.0, 2.0, 90.0, 1.0, 60.0])
    found = ratio.compare(scattered, scattered)
    assert (found.verdict, found.why) == ("ambiguous", "times are too scattered to tell one from its double")


def test_a_cpu_is_noisier_than_a_card():
    def verdict(on_cpu):
        return compare(Side(100, 0.01, 50, 50, on_cpu), Side(104, 0.01, 50, 50, on_cpu)).verdict

    assert (verdict(False), verdict(True)) == ("slower", "ambiguous")


@pytest.mark.parametrize("freedom, printed", [(1, 63.657), (2, 9.925), (3, 5.841), (4, 4.604), (10, 3.169)])
def test_student_t_of_99_percent_against_the_printed_table(freedom, printed):
    assert student_t(freedom, 0.99) == pytest.approx(printed, rel=0.01)
    assert student_t(1e6, 0.99) == pytest.approx(NormalDist().inv_cdf(0.995), rel=1e-4)
