"""Calls os._exit(0)."""

import os


def softmax(x, dim):
    os._exit(0)
