"""U9: computes float32 in float16 without saying so."""

import torch


def softmax(x, dim):
    return torch.softmax(x.half(), dim).to(x.dtype)
