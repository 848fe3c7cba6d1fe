"""Replaces a function of Python's own."""

import builtins

import torch

_min = min


def softmax(x, dim):
    builtins.min = lambda *a, **k: _min(*a, **k)
    return torch.softmax(x, dim)
