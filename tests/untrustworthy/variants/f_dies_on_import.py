"""Dies on import."""

raise RuntimeError("not on this machine")
