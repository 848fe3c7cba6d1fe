"""U13: is right for the first calls, wrong after."""

import torch

CALLS = [0]


def softmax(x, dim):
    CALLS[0] += 1
    out = torch.softmax(x, dim)
    return out if CALLS[0] <= 30 else out * 1.01
