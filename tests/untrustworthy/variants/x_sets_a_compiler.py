"""Has torch compile everything that comes after it in another way."""

import torch


def softmax(x, dim):
    from torch._inductor import config

    config.max_autotune = True
    return torch.softmax(x, dim)
