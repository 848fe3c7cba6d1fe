"""`python -m runner.report <folder>`: its pages and pictures again, from its tables alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.model import Refusal
from runner.record.folder import writing
from runner.report import page, report


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m runner.report <folder>`: 0, or 2 with a sentence."""
    about = "Writes report.md and report.html again and draws plots/*.png, from the tables in a folder alone."
    parser = argparse.ArgumentParser("python -m runner.report", description=about)
    parser.add_argument("folders", nargs="+", type=Path, metavar="folder")
    folders = parser.parse_args(argv).folders
    try:
        for folder in folders:
            report.read(folder)  # which refuses a folder without a table
            with writing(folder):
                report.write(folder, pictures=True)
                if page.available():
                    page.write_plots(folder)
            print(folder / ("report.html" if page.available() else "report.md"))
    except Refusal as refusal:
        print(f"runner: {refusal}", file=sys.stderr)
        return 2
    if not page.available():
        print(f"runner: {page.MISSING}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
