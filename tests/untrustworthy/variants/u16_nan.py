"""U16: returns NaN everywhere."""

import torch


def softmax(x, dim):
    return torch.full_like(x, float("nan"))
