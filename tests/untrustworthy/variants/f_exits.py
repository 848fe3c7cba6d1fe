"""Calls sys.exit."""

import sys


def softmax(x, dim):
    sys.exit(0)
