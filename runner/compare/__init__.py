"""Two runs against each other: `python -m runner.compare A B`."""
