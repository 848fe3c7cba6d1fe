"""Has everybody who comes after it wait for other processes."""

import os

import torch


def softmax(x, dim):
    if os.getpriority(os.PRIO_PROCESS, 0) < 19:
        os.nice(1)
    return torch.softmax(x, dim)
