"""Segfaults."""

import ctypes


def softmax(x, dim):
    ctypes.string_at(1)
