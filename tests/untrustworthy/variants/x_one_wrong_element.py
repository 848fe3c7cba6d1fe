"""Is wrong in one element of many."""

import torch


def softmax(x, dim):
    out = torch.softmax(x, dim)
    if out.numel():
        out.view(-1)[-1] *= 1.001
    return out
