"""Leaves a thread behind that the threading module does not know."""

import _thread

import torch

DONE = []


def spin():
    while True:
        sum(range(1000))


def softmax(x, dim):
    if not DONE:
        DONE.append(1)
        _thread.start_new_thread(spin, ())
    return torch.softmax(x, dim)
