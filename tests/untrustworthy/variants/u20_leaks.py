"""U20: holds every output alive until memory runs out."""

import torch

HELD = []


def softmax(x, dim):
    HELD.append(torch.softmax(x, dim))
    return HELD[-1].clone()
