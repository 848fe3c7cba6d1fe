"""Stops itself in each call, and goes on when somebody has it go on."""

import os
import signal

import torch


def softmax(x, dim):
    os.kill(os.getpid(), signal.SIGSTOP)
    return torch.softmax(x, dim)
