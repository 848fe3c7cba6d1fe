"""Has the processor take tiny numbers for zero, for all that come after it."""

import torch


def softmax(x, dim):
    torch.set_flush_denormal(True)
    return torch.softmax(x, dim)
