"""Where a run's time goes, by the steps that its worker announces; on a clock that no variant reaches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

_STAGES = {"inputs": "inputs", "build": "build", "check": "check", "measure": "timing", "profile": "profile"}
_EXTRAS = "extras"  # of the check, what is beside the case itself
_ORDER = ("wait", "start", "ceilings", "inputs", "build", "check", "timing", "profile", "rest")
_WORDS = {"wait": "waiting for the device", "inputs": "inputs and reference"}


class Spent:
    """Seconds by part, of the run and of whichever row they were for. There is always one part going on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since = clock, clock()
        self._parts: tuple[str, ...] = ("rest",)
        self._row: Counter[str] = Counter()
        self.total: Counter[str] = Counter()

    def on(self, *parts: str, row: Counter[str] | None = None) -> None:
        """From now on time goes into these parts, the second being within the first."""
        now = self._clock()
        for part in self._parts:
            self.total[part] += now - self._since
            self._row[part] += now - self._since
        self._since, self._parts, self._row = now, parts or ("rest",), Counter() if row is None else row

    def step(self, event: Mapping[str, Any], row: Counter[str] | None) -> None:
        """The worker begins a step: for this row, or still for the one before."""
        part = _STAGES.get(event["stage"], "rest")
        beside = part == "check" and event["what"].startswith("check ")
        self.on(*((part, _EXTRAS) if beside else (part,)), row=self._row if row is None else row)

    def words(self) -> str:
        """The whole run in a line; empty where no worker was asked for anything."""
        self.on()
        if self.total.keys() == {"rest"}:
            return ""
        whole = sum(self.total[part] for part in _ORDER)
        return f"{whole:.1f} s: {_listed(self.total, '.1f', _WORDS, {})}"


def words_of(row: Mapping[str, float], cached: Any = None) -> str:
    """What one row took; empty where it took nothing. `cached`: whether its build was there already."""
    return _listed(row, ".2f", {}, {"build": " (cached)"} if cached else {})


def _listed(spent: Mapping[str, float], form: str, names: Mapping[str, str], after: Mapping[str, str]) -> str:
    within = {"check": f" of which extras {spent[_EXTRAS]:{form}} s"} if spent.get(_EXTRAS) else {}
    return ", ".join(
        f"{names.get(part, part)} {spent[part]:{form}} s{after.get(part, '')}{within.get(part, '')}"
        for part in _ORDER
        if part in spent
    )
