"""What became faster or slower between two runs, and how sure that is: row by row.

Reads only what `record` wrote; `comparison.py` puts it in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.compare import ratio
from runner.compare.ratio import Ratio, Side
from runner.model import Refusal
from runner.record import kept
from runner.record.columns import FAILED
from runner.record.kept import Row, Table

THRESHOLD = 0.01


@dataclass(frozen=True)
class Pair:
    """One experiment in both. `verdict`: slower, faster, same, ambiguous, broken, fixed, or untimed."""

    a: Row
    b: Row
    verdict: str
    why: str = ""
    ratio: Ratio | None = None

    @property
    def same_code(self) -> bool:
        return bool(self.a["source_sha"]) and self.a["source_sha"] == self.b["source_sha"]


@dataclass(frozen=True)
class Comparison:
    """Everything that is known of two runs side by side."""

    names: tuple[str, str]
    tables: tuple[list[Table], list[Table]] = field(repr=False)
    pairs: list[Pair]
    only: tuple[list[Row], list[Row]]  # experiments that the other one lacks
    threshold: float = THRESHOLD

    def regressions(self) -> list[Pair]:
        """What fails a check: slower by more than the threshold, or no longer right."""
        return [pair for pair in self.pairs if pair.verdict == "broken" or self._slower(pair)]

    def _slower(self, pair: Pair) -> bool:
        return pair.verdict == "slower" and pair.ratio.value > 1 + self.threshold


def compare(a: str, b: str, threshold: float = THRESHOLD) -> Comparison:
    """B against A, each a folder, a file or a name below `outputs`.

    Raises Refusal where they cannot be read or have nothing in common.
    """
    tables = kept.tables(a), kept.tables(b)
    rows = [kept.newest(row for table in each for row in table.rows) for each in tables]
    samples = [{k: v for table in each for k, v in table.samples().items()} for each in tables]
    matched = list(_matched(*rows))
    if not matched:
        raise Refusal(f"{a} and {b} have no experiment in common{_hint(*rows)}")
    used = {row["row_id"] for pair in matched for row in pair}
    only = tuple([row for row in each if row["row_id"] not in used] for each in rows)
    return Comparison((a, b), tables, [_pair(*pair, *samples) for pair in matched], only, threshold)


def _matched(a: list[Row], b: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Rows of one experiment and timing. One without a time (it failed) stands for every timing."""
    timed = {(kept.experiment_of(row), row["timing"]): row for row in b}
    there = {kept.experiment_of(row): row for row in b}
    for row in a:
        key = kept.experiment_of(row)
        other = timed.get((key, row["timing"])) or timed.get((key, ""))
        other = other or (None if row["timing"] else there.get(key))
        if other:
            yield row, other


def _hint(a: list[Row], b: list[Row]) -> str:
    """Which of the things that must agree never do."""
    if not a or not b:
        return f": {'B' if a else 'A'} has no rows"
    names = (*kept.IDENTITY, "timing")
    apart = [name for name in names if not {row[name] for row in a} & {row[name] for row in b}]
    return f": they differ in {', '.join(apart)}" if apart else ""


def _pair(a: Row, b: Row, samples_a: dict[str, list[float]], samples_b: dict[str, list[float]]) -> Pair:
    failed = [row["status"] in FAILED for row in (a, b)]
    if failed == [False, True] and a["status"] != "skipped":
        return Pair(a, b, "broken", f"{b['status']} at {b['stage']}: {b['reason']}")
    if failed == [True, False] and b["status"] != "skipped":
        return Pair(a, b, "fixed", f"was {a['status']} at {a['stage']}")
    sides = side(a, samples_a), side(b, samples_b)
    if None in sides:
        return Pair(a, b, "untimed", " and ".join(dict.fromkeys((a["status"], b["status"]))))
    found = ratio.compare(*sides)
    return Pair(a, b, found.verdict, found.why, found)


def side(row: Row, samples: dict[str, list[float]]) -> Side | None:
    """A row's mean with its error: from its samples, or from its interval where they were not kept."""
    if row["status"] != "ok" or float(row["mean_ms"] or 0) <= 0:
        return None
    card = {
        "on_cpu": not row["device_uuid"],
        "sm_mhz": float(row["sm_mhz"]) if row["sm_mhz"] else None,
        "throttled": row["throttled"],
    }
    if len(raw := samples.get(row["row_id"], [])) > 1:
        return ratio.of_samples(raw, **card)
    if not row["mean_ci_low_ms"]:
        return None
    mean, low, high = (1e3 * float(row[name]) for name in ("mean_ms", "mean_ci_low_ms", "mean_ci_high_ms"))
    return ratio.of_interval(mean, low, high, int(row["trials"]), **card)
