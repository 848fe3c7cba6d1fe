"""Leaves the garbage collector off, and much for it to do."""

import gc

import torch

HEAP = []


def softmax(x, dim):
    gc.disable()
    if not HEAP:
        HEAP.extend([[]] for _ in range(100_000))
    return torch.softmax(x, dim)
