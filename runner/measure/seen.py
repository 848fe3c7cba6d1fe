"""Is a variant faster on inputs that it has seen before? Pure, over times in microseconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from runner.measure.statistics import in_words

# Generous: the fastest call on fresh values against the median or the mean of the repeated ones, whichever is
# less: one that answers from memory now and then moves the mean alone. For an honest kernel they differ by a
# few percent; one that answers from memory differs by its whole work.
FACTOR = 1.3
SLACK_US = 3.0
UNTIMED_FACTOR, UNTIMED_SLACK_US = 5.0, 2000.0
ENOUGH_UNTIMED = 6  # fewer calls that are not timed say nothing: a machine may have made each of them wait
_LEAST = 3  # of each kind: fewer say nothing


def from_memory(
    rounds: Sequence[int],
    times_us: Sequence[float],
    fresh: Sequence[int],
    beside_us: Sequence[float],
    again_us: Sequence[float],
) -> str:
    """Why a variant seems to answer from memory; empty when it does not.

    `times_us` of the `rounds`, of which the `fresh` ones were on new inputs; `beside_us` and `again_us` are
    of calls on new and on the same inputs, made in turns afterwards where the first look raised a suspicion.
    """
    new = set(fresh)
    once = [us for round_, us in zip(rounds, times_us) if round_ in new]
    often = [us for round_, us in zip(rounds, times_us) if round_ not in new]
    suspicion = faster_when_repeated([*once, *beside_us], often)
    return faster_when_repeated(beside_us, again_us) if suspicion and again_us else suspicion


def slow_when_untimed(
    untimed_us: Sequence[float], device_us: Sequence[float], host_us: Sequence[float]
) -> str:
    """The sentence when even the fastest call that was not timed took far longer than the timed ones' mean.

    Nothing honest knows which is which. The mean is the figure that is quoted. The fastest of many timed
    calls is no measure: where a busy machine makes most calls wait, three untimed ones often all did, and
    of fifty timed ones some did not. The first call of all, which compiles, is not among them.
    """
    if len(untimed_us) < ENOUGH_UNTIMED or not device_us:
        return ""
    timed, untimed = max(statistics.fmean(device_us), statistics.fmean(host_us)), min(untimed_us)
    if untimed <= plain_us(timed):
        return ""
    mean = f"{in_words(timed)} on average when it is"
    return f"slow when it is not timed: {in_words(untimed)} or more then, {mean}"


def plain_us(usual_us: float) -> float:
    """What a call may take where a usual one takes so long."""
    return UNTIMED_FACTOR * usual_us + UNTIMED_SLACK_US


def faster_when_repeated(fresh_us: Sequence[float], repeated_us: Sequence[float]) -> str:
    """The sentence when a variant is; empty when it is not, or when that cannot be told."""
    if len(fresh_us) < _LEAST or len(repeated_us) < _LEAST:
        return ""
    fresh = min(fresh_us)
    repeated = min(statistics.median(repeated_us), statistics.fmean(repeated_us))
    if fresh <= FACTOR * repeated + SLACK_US:
        return ""
    return (
        f"faster on inputs that it has seen before: {in_words(repeated)} when they are repeated, "
        f"{in_words(fresh)} or more when they are new"
    )
