"""Has everybody who comes after it run when nobody else wants to."""

import os

import torch


def softmax(x, dim):
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return torch.softmax(x, dim)
