"""U7: changes its input in place."""

import torch


def softmax(x, dim):
    out = torch.softmax(x, dim)
    x.add_(1.0)  # the softmax stays right
    return out
