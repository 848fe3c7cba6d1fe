"""U6: returns memory that it never wrote."""

import torch


def softmax(x, dim):
    return torch.empty_like(x)
