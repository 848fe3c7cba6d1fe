"""Leaves a lower limit on open files behind."""

import resource

import torch


def softmax(x, dim):
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    return torch.softmax(x, dim)
