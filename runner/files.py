"""Where the repository is. No torch."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
