"""Sets a variable that libraries heed where Python does not see it."""

import ctypes

import torch


def softmax(x, dim):
    ctypes.CDLL(None).setenv(b"OMP_SCHEDULE", b"static,1", 1)
    return torch.softmax(x, dim)
