"""Has autograd look for anomalies, which slows everybody's backward down."""

import torch


def softmax(x, dim):
    torch.autograd.set_detect_anomaly(True)
    return torch.softmax(x, dim)
