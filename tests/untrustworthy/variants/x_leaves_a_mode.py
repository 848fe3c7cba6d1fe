"""Leaves gradients switched off."""

import torch


def softmax(x, dim):
    torch.set_grad_enabled(False)
    return torch.softmax(x, dim)
