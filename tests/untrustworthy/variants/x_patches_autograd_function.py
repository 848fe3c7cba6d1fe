"""Replaces what all functions of autograd in Python are called by."""

import torch

_apply = torch.autograd.Function.apply


def softmax(x, dim):
    torch.autograd.Function.apply = lambda *a: _apply(*a)
    return torch.softmax(x, dim)
