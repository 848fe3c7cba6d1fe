"""Asks for deterministic algorithms, which fill memory before each use, for all that come after it."""

import torch


def softmax(x, dim):
    torch.use_deterministic_algorithms(True)
    return torch.softmax(x, dim)
