"""What is wrong with a row's times, in plain words. Pure; samples are microseconds in time order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, pvariance

from runner.measure.statistics import Summary, in_words, summarize
from runner.measure.stopping import half_width

# A share alone would fire on every tiny kernel: two readings of one event pair differ by that much anyway.
RESOLUTION_US = 0.5  # the documented resolution of cudaEventElapsedTime

SPREAD = 0.05  # of the median, between p20 and p80: ten times the precision that is aimed at
MEDIAN_APART = 0.02  # of the mean: beyond it, which of the two is quoted matters
DRIFT = 0.01  # of the first third's median: less moves no comparison, since variants take turns
DRIFT_Z = 3.29  # p < 0.001 for Spearman's rho under no trend, so that white noise is not called drift
OUTLIER_MADS = 5.0  # 3.4 standard deviations of a normal: 1 in 3000 on that side
LEAST_MAD = 0.005  # of the median: clocks that tick coarsely give a MAD of zero
OUTLIER_SHARE = 0.01  # and at least two: a lone one shows in mean against median, if it matters
GROUPS_APART = 0.01  # of the median
GROUPS_D = 6.0  # Ashman's D; above 2 is bimodal, but the best split of 20 uniform samples reaches 5
GROUP_SHARE = 0.2  # fewer are outliers
LEAST_SAMPLES = 12  # for drift and outliers: fewer cannot reach DRIFT_Z at all
LEAST_GROUPED = 20  # for groups: chance splits fewer too often
CLOCK_MOVED = 0.02  # of the highest: four steps of 15 MHz at 1980 MHz are 3 %, one is 0.8 %


def notes(
    samples_us: Sequence[float],
    *,
    sm_mhz: Sequence[float | None] = (),
    throttle: Sequence[str] = (),
    held: int | None = None,
    stop_reason: str = "",
    precision: float | None = None,
    summary: Summary | None = None,
) -> list[str]:
    """The sentences for a row's `note`; none for a quiet row.

    `sm_mhz`: the clock, sampled while this row's case was timed (None where it could not be read);
    `throttle`: reasons seen then; `held`: how many samples have no launch latency in them (None: all);
    `precision`: what `trials=auto` aimed at. `summary` spares computing it again.
    """
    summary = summary or summarize(samples_us)
    found = [
        _latency(summary.trials, held),
        _unfinished(samples_us, stop_reason, precision),
        _apart(summary),
        _spread(summary),
        _drift(samples_us),
        _groups(samples_us) or _outliers(samples_us),
        _clock([mhz for mhz in sm_mhz if mhz]),
        _throttled(throttle),
    ]
    return [sentence for sentence in found if sentence]


def _latency(trials: int, held: int | None) -> str:
    if held is None or held >= trials:
        return ""
    return f"launch latency is in {trials - held} of {trials} times: the host was slower"


def _unfinished(samples_us: Sequence[float], stop_reason: str, precision: float | None) -> str:
    """The budget or the count ran out while the interval was still too wide."""
    ended = {"budget": "the time budget", "max_trials": "the most trials allowed"}.get(stop_reason)
    if ended is None or precision is None:
        return ""
    mean, half = fmean(samples_us), half_width(samples_us)
    if half <= precision * mean:  # at the last moment, and only once
        return ""
    reached = _share(half, mean) if math.isfinite(half) else "unknown"
    verb = "ran out" if stop_reason == "budget" else "were taken"
    return (
        f"{ended} {verb} before the precision was reached: the half-width of the mean's 95 % interval "
        f"is {reached}, {100 * precision:.2g} % was asked for"
    )


def _apart(summary: Summary) -> str:
    if abs(summary.median - summary.mean) <= MEDIAN_APART * summary.mean:
        return ""
    return f"median {100 * (summary.median / summary.mean - 1):+.0f} % from the mean"


def _spread(summary: Summary) -> str:
    width = summary.p80 - summary.p20
    if not _matters(width, SPREAD, summary.median):
        return ""
    span = _share(width, summary.median)
    return f"the spread is wide: the middle 60 % of the times span {span} of the median"


def _drift(samples_us: Sequence[float]) -> str:
    """A trend over time that chance does not explain and that is large enough to care."""
    count = len(samples_us)
    if count < LEAST_SAMPLES or abs(spearman(samples_us)) * math.sqrt(count - 1) < DRIFT_Z:
        return ""
    third = count // 3
    first, last = median(samples_us[:third]), median(samples_us[-third:])
    if not _matters(abs(last - first), DRIFT, first):
        return ""
    verb = "rose" if last > first else "fell"
    change = _share(abs(last - first), first)
    return f"the times {verb} by {change} from the first third of the trials to the last"


def _groups(samples_us: Sequence[float]) -> str:
    """Two modes, by the split with the least variance inside its halves."""
    if len(samples_us) < LEAST_GROUPED:
        return ""
    ordered = sorted(samples_us)
    cut = _best_cut(ordered)
    low, high = ordered[:cut], ordered[cut:]
    apart = fmean(high) - fmean(low)
    if min(len(low), len(high)) < GROUP_SHARE * len(ordered):
        return ""
    inside = math.sqrt((pvariance(low) + pvariance(high)) / 2)
    if apart < GROUPS_D * inside or not _matters(apart, GROUPS_APART, median(ordered)):
        return ""
    return (
        f"the times fall into two groups: {len(low)} near {in_words(median(low))} "
        f"and {len(high)} near {in_words(median(high))}"
    )


def _outliers(samples_us: Sequence[float]) -> str:
    if len(samples_us) < LEAST_SAMPLES:
        return ""
    ordered = sorted(samples_us)
    middle = median(ordered)
    mad = max(median(abs(x - middle) for x in ordered), LEAST_MAD * middle)
    over = max(OUTLIER_MADS * mad, RESOLUTION_US)
    late = [x for x in ordered if x > middle + over]
    if len(late) < 2 or len(late) <= OUTLIER_SHARE * len(ordered):
        return ""
    worst = _share(late[-1] - middle, middle)
    return f"{len(late)} of {len(ordered)} times are far above the rest, the worst {worst} over the median"


def _clock(sm_mhz: Sequence[float]) -> str:
    if not sm_mhz or max(sm_mhz) - min(sm_mhz) <= CLOCK_MOVED * max(sm_mhz):
        return ""
    return f"the SM clock moved between {min(sm_mhz):.0f} and {max(sm_mhz):.0f} MHz"


def _throttled(reasons: Sequence[str]) -> str:
    return "the card held its clocks back: " + ", ".join(dict.fromkeys(reasons)) if reasons else ""


def _matters(difference: float, share: float, of: float) -> bool:
    return difference > max(share * of, RESOLUTION_US)


def _share(part: float, whole: float) -> str:
    if not whole:
        return f"{part:.2g} us"
    percent = 100 * part / whole
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def spearman(samples: Sequence[float]) -> float:
    """Rank correlation of the samples with their order in time; ties share a rank, constants give 0."""
    count = len(samples)
    ranks = _ranks(samples)
    middle = (count - 1) / 2
    spread = sum((r - middle) ** 2 for r in ranks)
    if spread == 0:
        return 0.0
    along = sum((r - middle) * (i - middle) for i, r in enumerate(ranks))
    return along / math.sqrt(spread * sum((i - middle) ** 2 for i in range(count)))


def _ranks(samples: Sequence[float]) -> list[float]:
    order = sorted(range(len(samples)), key=samples.__getitem__)
    ranks = [0.0] * len(samples)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and samples[order[end]] == samples[order[start]]:
            end += 1
        for position in order[start:end]:
            ranks[position] = (start + end - 1) / 2
        start = end
    return ranks


def _best_cut(ordered: Sequence[float]) -> int:
    """Otsu's: where the variance between the halves is largest. In 1..n-1."""
    count, total, below = len(ordered), sum(ordered), 0.0
    best, cut = -1.0, 1
    for i in range(1, count):
        below += ordered[i - 1]
        between = (below / i - (total - below) / (count - i)) ** 2 * i * (count - i)
        if between > best:
            best, cut = between, i
    return cut
