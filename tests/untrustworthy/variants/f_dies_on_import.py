"""Dies on import."""

raise RuntimeError("not on this machine")


def softmax(x, dim):
    return x
