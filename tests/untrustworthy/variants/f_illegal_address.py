"""Reads an address that is not there, on the device."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o_n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    far = o_n.to(tl.int64) * 4096 + (1 << 40)
    tl.store(out_ptr + o_n, tl.load(x_ptr + far), mask=o_n < n)


def softmax(x, dim):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


DEVICES = ("cuda",)
