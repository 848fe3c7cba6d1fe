"""Returns a view of its input."""


def softmax(x, dim):
    return x.view(x.shape)
