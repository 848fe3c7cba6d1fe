"""Host memory: what may be used here. Linux; elsewhere nothing is known."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

_SHARE = 0.9  # of what is available: beyond it the machine itself is in danger
_CGROUP = Path("/sys/fs/cgroup")


def limit_bytes(asked_gb: float | None) -> float:
    """What a worker may hold: as asked, else a share of what is available now."""
    return _SHARE * available_bytes() if asked_gb is None else asked_gb * 1e9


def available_bytes() -> float:
    """What could be allocated now without swapping, the container's own limit included; else infinite."""
    free = math.inf
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    with contextlib.suppress(OSError, ValueError):  # no limit is "max"
        most, used = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, most - used)
    return max(free, 0.0)


def offer_first() -> None:
    """When memory runs out, the kernel ends this process and its children before others."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
