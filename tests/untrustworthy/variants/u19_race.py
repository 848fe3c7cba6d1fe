"""U19: gives different results for the same input on different calls."""

import random

import torch


def softmax(x, dim):
    out = torch.softmax(x, dim)
    if random.SystemRandom().random() < 0.5:
        out[..., -1] = out[..., 0]
    return out
