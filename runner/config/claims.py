"""What an experiment may claim: published figures to stand beside its own, in `claims`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MEASURES = {  # what a claim may be about -> its unit
    "mean_ms": "ms",
    "speedup": "x",  # of `variant` over the variant `over`
    "kernels_per_call": "kernels",
    "product_percent": "% of the device time",
}


def faults(claims: Any) -> Iterable[str]:
    """What is wrong with the list as it was written."""
    for i, claim in enumerate(claims):
        missing = [key for key in ("says", "op", "variant", "measure") if key not in claim]
        if missing:
            yield f"claims[{i}]: {missing[0]} is missing"
        elif claim["measure"] not in MEASURES:
            yield f"claims[{i}].measure: no measure {claim['measure']!r}; there is {', '.join(MEASURES)}"
        elif claim["measure"] == "speedup" and "over" not in claim:
            yield f"claims[{i}]: a speedup needs `over`, the variant that is slower"
