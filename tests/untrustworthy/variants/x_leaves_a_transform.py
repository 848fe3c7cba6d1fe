"""Begins one of torch's transforms of functions and never ends it."""

import torch


def softmax(x, dim):
    torch._C._functorch._vmap_increment_nesting(1, "error")
    return torch.softmax(x, dim)
