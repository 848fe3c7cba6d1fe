"""U11: its launch fails silently, and the output is what lay there."""

import contextlib

import torch


def softmax(x, dim):
    out = torch.empty_like(x)
    with contextlib.suppress(RuntimeError):
        _launch(x, out)
    return out


def _launch(x, out):
    raise RuntimeError("too many resources requested for launch")
