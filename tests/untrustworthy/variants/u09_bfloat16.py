"""U9: computes float32 in bfloat16 without saying so."""

import torch


def softmax(x, dim):
    return torch.softmax(x.bfloat16(), dim).to(x.dtype)
