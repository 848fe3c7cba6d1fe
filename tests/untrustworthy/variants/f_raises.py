"""Raises."""


def softmax(x, dim):
    raise ValueError("no such luck")
