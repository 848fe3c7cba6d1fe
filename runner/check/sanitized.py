"""One variant on small cases, to be run under a tool: `python -m runner.check.sanitized <request>`."""

from __future__ import annotations

import functools
import pickle
import sys
import tempfile
from pathlib import Path

import torch

from runner.build.inputs import make_inputs, output_dtypes
from runner.build.variant import build
from runner.check.exchange import Outbox
from runner.check.prove import OpenCase, make_trial
from runner.model import HOST

_SEED = 0  # nothing is compared: any values do


def main(path: str) -> None:
    entry, cases, device = pickle.loads(Path(path).read_bytes())
    fn = build(entry.variant, device, Path(tempfile.mkdtemp())).fn
    for case in cases:
        one = OpenCase(case, functools.partial(Outbox, device, HOST))
        shape = _shape(fn, one, entry) if case.direction == "backward" else ()
        one.draw(_SEED, shape, [()] * len(output_dtypes(case)))
        trial = make_trial(one, entry, fn)
        try:
            trial.prepare()
            trial.call()
        except NotImplementedError:  # it refuses this case
            continue
        if device != "cpu":
            torch.cuda.synchronize(device)


def _shape(fn, one: OpenCase, entry) -> tuple[int, ...]:
    """Of the output, which the upstream gradient has."""
    arguments = {**one.case.attrs, **entry.variant.kwargs, **entry.params}
    return tuple(fn(*make_inputs(one.case, _SEED), **arguments).shape)


if __name__ == "__main__":
    main(sys.argv[1])
