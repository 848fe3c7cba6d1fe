"""Is called back by whatever Python audits, between two calls; such a hook cannot be taken off again."""

import sys

import torch

ASKED = []


def softmax(x, dim):
    if not ASKED:
        ASKED.append(True)
        sys.addaudithook(_heard)
    return torch.softmax(x, dim)


def _heard(event, arguments):
    pass
