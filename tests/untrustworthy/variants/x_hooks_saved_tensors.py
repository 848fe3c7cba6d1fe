"""Hooks what autograd saves, in everybody's forward."""

import torch


def softmax(x, dim):
    torch._C._autograd._push_saved_tensors_default_hooks(lambda t: t, lambda t: t)
    return torch.softmax(x, dim)
