"""Allocates its output once, and writes over it in each call."""

import torch

KEPT = {}


def softmax(x, dim):
    if x.shape not in KEPT:
        KEPT[x.shape] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return torch.softmax(x, dim, out=KEPT[x.shape])
