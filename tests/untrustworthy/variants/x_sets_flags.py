"""Leaves a precision flag behind for whoever comes next."""

import torch


def softmax(x, dim):
    torch.set_float32_matmul_precision("medium")
    return torch.softmax(x, dim)
