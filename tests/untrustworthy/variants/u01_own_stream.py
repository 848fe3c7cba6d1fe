"""U1: works on a stream (on the CPU: a thread) of its own and returns before the work is done."""

import threading
import time

import torch


def softmax(x, dim):
    out = torch.zeros_like(x)
    if x.is_cuda:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)  # about a millisecond
            out.copy_(torch.softmax(x, dim))
        return out
    threading.Thread(target=_work, args=(x.detach().clone(), dim, out)).start()
    return out


def _work(x, dim, out):
    time.sleep(0.02)
    out.copy_(torch.softmax(x, dim))
