"""Loops forever on the host."""


def softmax(x, dim):
    while True:
        pass
