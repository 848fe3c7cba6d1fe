"""Leaves another default device behind."""

import torch


def softmax(x, dim):
    torch.set_default_device("meta")
    return torch.softmax(x, dim)
