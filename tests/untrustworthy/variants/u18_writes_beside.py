"""U18: writes out of bounds next to its output."""

import ctypes

import torch


def softmax(x, dim):
    out = torch.softmax(x, dim)
    end = out.data_ptr() + out.numel() * out.element_size()
    if x.is_cuda:
        runtime = ctypes.CDLL(next(p for p in _loaded() if "libcudart" in p))
        runtime.cudaMemset(ctypes.c_void_p(end), 0, ctypes.c_size_t(64))
    else:
        ctypes.memset(end, 0, 64)
    return out


def _loaded():
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if "/" in line}
