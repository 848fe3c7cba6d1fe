"""Whoever warns from now on raises."""

import warnings

import torch


def softmax(x, dim):
    warnings.simplefilter("error")
    return torch.softmax(x, dim)
