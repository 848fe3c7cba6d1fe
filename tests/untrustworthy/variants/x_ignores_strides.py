"""Takes its input's memory for contiguous."""

import torch


def softmax(x, dim):
    return torch.softmax(torch.as_strided(x, x.shape, (max(x.shape[1], 1), 1)), dim)
