"""The page of `python -m runner --help`, from the schema alone, so that it is there at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import get_type_hints

from runner.schema import MODES, Config

TOP = """\
Runs experiments on GPU kernels: builds each variant of an op, proves it right, times it, writes tables.

usage: python -m runner op=<name> [key=value ...]
       python -m runner -m op=<name>,<name> shape.<dim>=<n>,<n> ...    one run for each combination

  python -m runner mode=list                                 what there is, and why
  python -m runner op=gelu                                   every variant at the default size
  python -m runner op=softmax 'variant=[naive,builtin]' dtype=bfloat16 shape.cols=4096
  python -m runner op=cdist 'shapes=[{n: 1024, d: 3}, {n: 4096, d: 64}]' attrs.p=1
  python -m runner op=gelu variant=triton_block mode=check   the loop of somebody writing a kernel
  python -m runner mode=profile op=cdist variant=builtin     where the time of a call goes
  python -m runner mode=profile workload=train_step          what of a training step is worth optimising
  python -m runner -m op=softmax shape.cols=1024,4096 dtype=float32,bfloat16
  python -m runner -m experiment=headline                    an experiment over several ops
  python -m runner resume=outputs/gelu/<folder>              what a killed or interrupted run had left to do

  python -m runner.compare <run> <run>                       what became faster or slower, and how surely
  python -m runner.collect <run> <run> ...                   several runs as one table
  python -m runner.report <run>                              its report.html and plots/*.png, from its tables
"""
BOTTOM = """\
options
  -m, --multirun        one run for each combination of comma-separated values
  --config-dir <dir>    further ops, experiments and measures, in <dir>/op, <dir>/experiment, <dir>/measure
  --cfg job             shows the composed configuration and runs nothing
  --info, --hydra-help, --shell-completion    Hydra's own
  -h, --help            this page

columns
  mean, p20 - p80    of the timed calls, and where their middle 60 % lie
  % of limit         the least time that this device needs for the declared bytes and operations,
                     over the mean
  speedup            the baseline's mean (1.00x) over this one
  max error          the largest difference from the definition in float64
  verdict            ok (right and timed), checked (right), skipped, wrong, error, crashed or timeout,
                     and how far from the limit; disturbed: something else had the machine meanwhile

exit codes
  0  every row is right        1  some row is wrong, error, crashed or timeout
  2  refused: each line on stderr is one thing to change        130  interrupted: the row at hand is
     finished first, a second Ctrl-C stops at once               (143 by SIGTERM)

A run writes <output>/<op or experiment>/<date>/: results.csv, samples.csv, environment.json, report.md.
"""


def page() -> str:
    """The whole page, with a line for each key and each mode."""
    hints = get_type_hints(Config, include_extras=True)
    keys = [_line(name, hint.__metadata__[0]) for name, hint in hints.items() if name != "why"]
    keys.insert(1, ("experiment=", "a file of conf/experiment: a named set of keys"))
    return "\n".join([TOP, "keys", *_lines(keys), "", "modes", *_lines(MODES.items()), "", BOTTOM.rstrip()])


def _line(name: str, text: str) -> tuple[str, str]:
    """(how the key is typed, its help); keys with names below them say so in their help."""
    typed, mark, rest = text.partition("=: ")
    return (f"{typed}=", rest) if mark else (f"{name}=", text)


def _lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {name:<18} {text}" for name, text in pairs]


def show(text: str) -> None:
    """Prints a page; a reader that has seen enough (`| head`) is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
