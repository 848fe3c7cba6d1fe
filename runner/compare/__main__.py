"""`python -m runner.compare A B`: what became faster or slower between two runs, and how sure that is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from runner.compare import comparison
from runner.compare.pairs import THRESHOLD, compare
from runner.model import Refusal

SAME, WORSE, REFUSED = 0, 1, 2
ABOUT = """\
Matches the rows of two runs by op, variant, parameters, attributes, shape, layout, dtype, direction and
timing, and says of each pair whether B is faster or slower than A. Exit code 1: something became slower by
more than the threshold, or is no longer right; 2: bad input; 0 otherwise.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: see `ABOUT`."""
    asked = _parser().parse_args(argv)
    try:
        found = compare(asked.a, asked.b, asked.threshold)
    except Refusal as refusal:
        print(f"runner: {refusal}", file=sys.stderr)
        return REFUSED
    if asked.markdown:
        print(comparison.markdown(found))
    else:
        comparison.print_tables(found, every=asked.all)
    return WORSE if found.regressions() else SAME


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m runner.compare", description=ABOUT)
    parser.add_argument("a", help="the run before: a folder, a results.csv, or a name below outputs")
    parser.add_argument("b", help="the run after")
    parser.add_argument("--markdown", action="store_true", help="for a pull request")
    parser.add_argument("--all", action="store_true", help="the rows that stayed the same too")
    parser.add_argument(
        "--threshold",
        type=_share,
        default=THRESHOLD,
        metavar="SHARE",
        help="how much slower is a regression: 0.01 or 1%% (the default)",
    )
    return parser


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < (100 if text.endswith("%") else 1):  # 5 may mean 5 %, and 500 %
        raise argparse.ArgumentTypeError(f"{text}: write it as 5% or 0.05")
    return value


if __name__ == "__main__":
    sys.exit(main())
