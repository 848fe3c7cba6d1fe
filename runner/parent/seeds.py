"""Seeds of single draws, from the run's secret one. The parent alone knows the secret while variants run."""

from __future__ import annotations

import hashlib


def of_draw(secret: int, case_id: str, number: int) -> int:
    """The seed of the `number`-th draw of a case's inputs. One draw's seed says nothing of another's."""
    digest = hashlib.sha256(f"{secret}/{case_id}/draw {number}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
