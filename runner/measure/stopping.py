"""When enough has been timed. Pure rules over samples in time order (microseconds)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Protocol

from runner.measure.statistics import student_t

_LEAST_TRIALS = 3  # taken whatever the budget says: fewer have no spread to speak of
_LOOK_GROWTH = 1.1  # samples between two looks, so that looking costs a constant share per sample
_LOOKS_IN_A_ROW = 2  # one narrow interval may be luck; the next one shares most of its samples, not all
_BATCHES = 10
_LEAST_PER_BATCH = 5  # shorter batches see no more than the correlation of neighbours does
_UNLIKELY = 1.88  # white noise puts more than this on the variance of 10 batch means 1 time in 20
_MOST_CORRELATION = 0.95


class Rule(Protocol):
    """Decides for one variant. Keeps state: each variant has its own."""

    def done(self, samples_us: Sequence[float], spent_s: float) -> str:
        """The reason to stop, or '' to go on. Called after each trial with all timed samples so far."""


class Exactly:
    """`trials=N`: that many, whatever they say and however long they take."""

    def __init__(self, count: int) -> None:
        self.count = count

    def done(self, samples_us: Sequence[float], spent_s: float) -> str:
        return "trials" if len(samples_us) >= self.count else ""


@dataclass
class Precision:
    """`trials=auto`: until the 95 % interval of the mean is `precision * mean` wide to either side.

    It looks at counts that grow by a tenth, and believes two looks in a row: a rule that looks after
    every sample stops at the first lucky narrow interval, and its means are worth less than they claim.
    Only timed samples count, so nothing that happens in a warmup changes the number of trials.
    `done` says what holds now, not what once held: more samples may widen an interval again.
    """

    precision: float  # half-width over mean, 0.005 for half a percent
    min_trials: int
    max_trials: int
    budget_s: float

    def __post_init__(self) -> None:
        # The first look comes before min_trials, so that the second can end it at min_trials.
        self._next_look = max(_LEAST_TRIALS, math.floor(self.min_trials / _LOOK_GROWTH))
        self._narrow_looks = 0

    def done(self, samples_us: Sequence[float], spent_s: float) -> str:
        """'precision', 'max_trials', 'budget' or ''. `spent_s` runs from the first timed trial."""
        count = len(samples_us)
        if count >= self._next_look:
            self._look(samples_us)
        if self._narrow_looks >= _LOOKS_IN_A_ROW and count >= self.min_trials:
            return "precision"
        if count >= self.max_trials:
            return "max_trials"
        return "budget" if spent_s >= self.budget_s and count >= _LEAST_TRIALS else ""

    def _look(self, samples_us: Sequence[float]) -> None:
        count = len(samples_us)
        narrow = half_width(samples_us) <= self.precision * fmean(samples_us)
        self._narrow_looks = self._narrow_looks + 1 if narrow else 0
        grown = max(count + 1, math.ceil(count * _LOOK_GROWTH))
        self._next_look = self.min_trials if count < self.min_trials else grown


class Rounds:
    """Whether a set of variants takes another round. All get the same number of trials.

    It goes on until every variant is done at once, or the set has spent what its members may spend together.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = list(rules)
        self.reasons = [""] * len(self.rules)  # per variant, once `another` has said no

    def another(self, samples_us: Sequence[Sequence[float]], spent_s: float) -> bool:
        """Called between rounds with each variant's samples and the seconds since the first timed trial."""
        share = spent_s / max(len(self.rules), 1)
        self.reasons = [rule.done(samples, share) for rule, samples in zip(self.rules, samples_us)]
        return not all(self.reasons)


def half_width(samples: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean; infinite for fewer than two samples."""
    if len(samples) < 2:
        return math.inf
    error, freedom = mean_error(samples)
    return student_t(freedom) * error


def mean_error(samples: Sequence[float]) -> tuple[float, int]:
    """The standard error of the mean and its degrees of freedom, of two samples or more.

    Both by the number of independent samples that these are worth (`inflation`).
    """
    worth = len(samples) / inflation(samples)
    return math.sqrt(variance(samples) / worth), max(math.floor(worth) - 1, 1)


def inflation(samples: Sequence[float]) -> float:
    """How much larger the variance of the mean is than that of as many independent samples; at least 1.

    Clocks drift and caches remember, so neighbours are alike and the usual interval is too narrow.
    Two estimates, the larger counts: (1 + r) / (1 - r) for a lag-1 correlation r (exact for a
    first-order process; r corrected for its bias of -(1 + 3r) / n, Kendall 1954), and the spread of
    batch means, which sees slow waves under fast noise; that one only where chance is no explanation.
    What stays too narrow (in simulation, at the trial where `Precision` stops): r = 0.8 holds the truth
    83 times in 100, exponential noise 90; white noise 95 or more, r = 0.5 likewise.
    """
    r = min(lag1(samples), _MOST_CORRELATION)
    neighbours = (1 + r) / (1 - r) if r > 0 else 1.0
    batches = _batch_inflation(samples)
    return max(neighbours, batches if batches > _UNLIKELY else 1.0)


def lag1(samples: Sequence[float]) -> float:
    """Correlation of neighbours in time, bias corrected; 0 for constants and for fewer than four."""
    count = len(samples)
    if count < 4:
        return 0.0
    mean = fmean(samples)
    off = [x - mean for x in samples]
    total = sum(x * x for x in off)
    if total == 0:
        return 0.0
    raw = sum(a * b for a, b in itertools.pairwise(off)) / total
    return raw + (1 + 3 * raw) / count


def _batch_inflation(samples: Sequence[float]) -> float:
    """Variance of the means of ten batches against what independent samples would give; 1 when too few."""
    size = len(samples) // _BATCHES
    if size < _LEAST_PER_BATCH:
        return 1.0
    total = variance(samples)
    if total == 0:
        return 1.0
    skipped = len(samples) - size * _BATCHES  # the earliest, so that batches end with the present
    means = [fmean(samples[skipped + i * size : skipped + (i + 1) * size]) for i in range(_BATCHES)]
    return size * variance(means) / total
