"""U8: returns zeros where the right values are tiny."""

import torch


def softmax(x, dim):
    out = torch.softmax(x, dim)
    return torch.where(out < 1e-4, torch.zeros_like(out), out)
