"""Which rounds get inputs that no variant has seen, and how much of the time goes into checking."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager

VALUES, STORAGE = "values", "storage"  # new values in the same memory; new values in new memory
LEAST = 2  # rounds of each kind
_SHARE = 0.15  # of the rounds, while there is time for it
_JUDGED = 0.1  # of the other calls
_LOOKED_AT = 1 / 16  # of the calls, once all that is allowed is spent
_ALLOWED_S = 0.5  # per variant, or twice its timing, whichever is more
_random = random.SystemRandom()  # the system's: it has no state that a variant could read


class Freshness:
    """Decides as late as can be: before a round whether it is fresh, after a call whether it is judged."""

    def __init__(self, variants: int, kinds: tuple[str, ...]) -> None:
        self.counts = dict.fromkeys(kinds, 0)
        self.spent_s, self._start, self._variants = 0.0, time.monotonic(), variants

    def kind(self, must: bool) -> str:
        """What the coming round is: one of the kinds, or '' for one on the present inputs."""
        if not must and not (self._affordable() and _random.random() < _SHARE):
            return ""
        fewest = min(self.counts.values())
        chosen = _random.choice([kind for kind, count in self.counts.items() if count == fewest])
        self.counts[chosen] += 1
        return chosen

    def judged(self) -> bool:
        """Whether a call on inputs that were seen before is judged."""
        return self._affordable() and _random.random() < _JUDGED

    def looked_at(self) -> bool:
        """Whether what a call left behind is looked at: each, while that is allowed."""
        return self.spent_s < self._allowed_s or _random.random() < _LOOKED_AT

    @property
    def lacking(self) -> bool:
        return min(self.counts.values()) < LEAST

    @property
    def timing_s(self) -> float:
        """Of the time since the start, what was not checking."""
        return time.monotonic() - self._start - self.spent_s

    def _affordable(self) -> bool:
        """Half of what is allowed: the rest is for looking at what calls leave behind."""
        return self.spent_s < 0.5 * self._allowed_s

    @property
    def _allowed_s(self) -> float:
        return max(_ALLOWED_S * self._variants, 2 * self.timing_s)

    @contextmanager
    def checking(self):
        """Time that is not the timing's."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent_s += time.monotonic() - began
