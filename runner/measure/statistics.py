"""Samples -> figures. Pure functions over lists of floats; units go in and out unchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev


def in_words(us: float) -> str:
    """A time in four significant digits, in the unit that reads best: `288.3 us`, `11.76 ms`."""
    return f"{us / 1e3:.4g} ms" if abs(us) >= 1e3 else f"{us:.4g} us"


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
    std = stdev(ordered) if len(ordered) > 1 else None
    return Summary(
        trials=len(ordered),
        mean=mean,
        median=median(ordered),
        min=ordered[0],
        p20=quantile(ordered, 0.2),
        p80=quantile(ordered, 0.8),
        std=std,
        mean_ci=None if std is None else _mean_interval(mean, std, len(ordered)),
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


def student_t(freedom: float, confidence: float = 0.95) -> float:
    """The half-width of that central share of Student's t.

    Closed forms for 1 and 2 degrees of freedom; Abramowitz and Stegun 26.7.5 above, at 95 % within 0.2 %, at
    99.5 % within 1.5 % for 3 degrees and 0.5 % for more. Between whole degrees the one below counts.
    """
    share = (1 + confidence) / 2
    if freedom < 2:
        return math.tan(math.pi * (share - 0.5))
    if freedom < 3:
        return (2 * share - 1) / math.sqrt(2 * share * (1 - share))
    z, n = NormalDist().inv_cdf(share), math.floor(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, 1))


def _median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """At least 95 %, from order statistics: the ranks where a fair coin's tail drops under 2.5 %."""
    count = len(ordered)
    tail, rank = 0.0, 0
    while tail + math.comb(count, rank) / 2**count <= 0.025:
        tail += math.comb(count, rank) / 2**count
        rank += 1
    low = max(rank - 1, 0)
    return ordered[low], ordered[count - 1 - low]
