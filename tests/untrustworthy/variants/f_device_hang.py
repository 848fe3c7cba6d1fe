"""Spins on the device far beyond its time limit."""

import torch


def softmax(x, dim):
    for _ in range(40):  # about a minute in all
        torch.cuda._sleep(2_900_000_000)
    return torch.softmax(x, dim)


DEVICES = ("cuda",)
