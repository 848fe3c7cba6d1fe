"""Fails an assertion on the device."""

import torch


def softmax(x, dim):
    index = torch.full((1,), x.numel() + 1, device=x.device)
    return x.view(-1)[index]


DEVICES = ("cuda",)
