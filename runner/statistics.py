"""Samples -> figures. Pure functions over lists of floats; units go in and out unchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev

_Z95 = NormalDist().inv_cdf(0.975)
_SMALL_T = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305}


@dataclass(frozen=True)
class Summary:
    """What is reported of one row's samples."""

    trials: int
    mean: float
    median: float
    min: float
    p20: float
    p80: float
    std: float | None  # None below two samples, as are the intervals
    mean_ci: tuple[float, float] | None
    median_ci: tuple[float, float] | None


def summarize(samples: Sequence[float]) -> Summary:
    """All figures of a row. Raises ValueError on no samples."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    mean = fmean(ordered)
    several = len(ordered) > 1
    return Summary(
        trials=len(ordered),
        mean=mean,
        median=median(ordered),
        min=ordered[0],
        p20=quantile(ordered, 0.2),
        p80=quantile(ordered, 0.8),
        std=stdev(ordered) if several else None,
        mean_ci=_mean_interval(mean, stdev(ordered), len(ordered)) if several else None,
        median_ci=_median_interval(ordered) if len(ordered) >= 6 else None,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7)."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _mean_interval(mean: float, std: float, count: int) -> tuple[float, float]:
    half = student_t(count - 1) * std / math.sqrt(count)
    return mean - half, mean + half


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5, which is too low under 4)."""
    if freedom in _SMALL_T:
        return _SMALL_T[freedom]
    z = _Z95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """At least 95 %, from order statistics: the ranks where a fair coin's tail drops under 2.5 %."""
    count = len(ordered)
    tail, rank = 0.0, 0
    while tail + math.comb(count, rank) / 2**count <= 0.025:
        tail += math.comb(count, rank) / 2**count
        rank += 1
    low = max(rank - 1, 0)
    return ordered[low], ordered[count - 1 - low]
