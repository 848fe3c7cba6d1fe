"""The ratio of two mean times from two runs, and what can be said of it. Pure; times in microseconds.

Welch's interval on the logarithm of the ratio. The error of each mean is the one that stopped its run: over
the number of independent samples that correlated ones are worth. To it comes what two processes that run the
same code differ by, which no number of samples in one process shows: other addresses, other clocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from runner.measure.statistics import student_t
from runner.measure.stopping import mean_error

CONFIDENCE = 0.995  # of the interval that decides: one false verdict in 200 comparisons
# A run stops when its interval looks narrow, which is a little early: its 95 % intervals hold the truth 85 to
# 97 times of 100 (METHODOLOGY.md), so an error may be 1.96 / 1.44 of what it says.
EARLY = 1.3
# Standard deviation of the ratio between processes. On an H200 the worst of five was off by 0.3 % at 125 us
# and by 1 to 3.6 % at 5 us, where a kernel carries the placement of its buffers.
PROCESS_SHARE = 0.0025
PROCESS_US = 0.1
PROCESS_SHARE_CPU = 0.03  # assumed: other programs, page placement, turbo
SAME = 0.02  # an interval inside of this on both sides is a verdict too
CLOCK_STEP = 0.01  # of the clock: one step of 15 MHz at 1980 MHz is 0.8 %
THROTTLED = 0.05  # what a card that held its clocks back may have lost between two readings of them
LEAST_TRIALS = 6


@dataclass(frozen=True)
class Side:
    """One row's mean with its standard error, and its card meanwhile."""

    mean: float
    error: float
    freedom: float
    trials: int
    on_cpu: bool = False
    sm_mhz: float | None = None
    throttled: str = ""  # reasons


@dataclass(frozen=True)
class Ratio:
    """B over A: above 1 is slower. `verdict` is slower, faster, same or ambiguous."""

    value: float
    low: float
    high: float
    verdict: str
    why: str = ""  # what to know about it, in words


def of_samples(samples: Sequence[float], **card) -> Side:
    """From raw samples in time order, two at least."""
    return Side(fmean(samples), *mean_error(samples), trials=len(samples), **card)


def of_interval(mean: float, low: float, high: float, trials: int, **card) -> Side:
    """From a row's mean and its 95 % interval, where the samples were not kept."""
    freedom = trials - 1
    return Side(mean, (high - low) / 2 / student_t(freedom), freedom, trials, **card)


def compare(a: Side, b: Side) -> Ratio:
    """B over A with its interval and verdict. Means must be above 0."""
    value = b.mean / a.mean
    half = _half(a, b)
    low, high = value * math.exp(-half), value * math.exp(half)
    if min(a.trials, b.trials) < LEAST_TRIALS:
        return Ratio(value, low, high, "ambiguous", f"fewer than {LEAST_TRIALS} trials: run both with more")
    down, up, words = _explained(a, b)
    return Ratio(value, low, high, *_verdict(low / up, high / down, (low, high), words))


def _half(a: Side, b: Side) -> float:
    """Of the interval, in logarithms of the ratio."""
    own = [(EARLY * side.error / side.mean) ** 2 for side in (a, b)]
    total = sum(own) + process_error(a, b) ** 2
    if total == 0:
        return 0.0
    # Welch and Satterthwaite; the error between processes counts as known.
    shares = sum(error**2 / side.freedom for error, side in zip(own, (a, b)))
    freedom = total**2 / shares if shares else math.inf
    return student_t(min(freedom, 1e6), CONFIDENCE) * math.sqrt(total)


def process_error(a: Side, b: Side) -> float:
    """Standard deviation of the ratio of two processes that time the same code, each to the end."""
    if a.on_cpu or b.on_cpu:
        return PROCESS_SHARE_CPU
    return math.hypot(PROCESS_SHARE, PROCESS_US / min(a.mean, b.mean))


def _explained(a: Side, b: Side) -> tuple[float, float, str]:
    """(least, most) factor on the ratio that the clocks alone explain, and the words for it.

    A kernel that waits for memory does not follow the clock, one that computes does: anything in between.
    """
    down, up, words = 1.0, 1.0, []
    if a.sm_mhz and b.sm_mhz and abs(b.sm_mhz / a.sm_mhz - 1) > CLOCK_STEP:
        slower = a.sm_mhz / b.sm_mhz
        down, up = min(1.0, slower), max(1.0, slower)
        words.append(f"the SM clock was {a.sm_mhz:.0f} and {b.sm_mhz:.0f} MHz")
    if b.throttled and not a.throttled:
        up *= 1 + THROTTLED
        words.append(f"the card held back in B ({b.throttled})")
    if a.throttled and not b.throttled:
        down /= 1 + THROTTLED
        words.append(f"the card held back in A ({a.throttled})")
    return down, up, "; ".join(words)


def _verdict(low: float, high: float, measured: tuple[float, float], clocks: str) -> tuple[str, str]:
    """From the interval with what the clocks explain taken off, and as measured."""
    if low > 1:
        return "slower", clocks
    if high < 1:
        return "faster", clocks
    if not measured[0] <= 1 <= measured[1]:
        return "ambiguous", f"{clocks}, which may be all of it"
    inside = measured[0] >= 1 - SAME and measured[1] <= 1 + SAME
    return ("same", clocks) if inside else ("ambiguous", clocks or _too_wide(*measured))


def _too_wide(low: float, high: float) -> str:
    width = max(high / math.sqrt(low * high) - 1, 0)
    if width > 1:
        return "times are too scattered to tell one from its double"
    return f"differences under {100 * width:.1f} % cannot be told"
