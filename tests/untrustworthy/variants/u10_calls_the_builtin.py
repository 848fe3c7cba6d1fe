"""U10: calls the built-in while it claims to be a kernel of its own."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o_n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + o_n, tl.load(x_ptr + o_n, mask=o_n < n, other=0.0), mask=o_n < n)


def softmax(x, dim):
    return torch.softmax(x, dim)
