"""Prints megabytes."""

import torch


def softmax(x, dim):
    for _ in range(40):
        print("y" * 100_000)
    return torch.softmax(x, dim)
