"""Runs out of device memory."""

import torch


def softmax(x, dim):
    return torch.empty(1 << 50, dtype=torch.uint8, device=x.device)
