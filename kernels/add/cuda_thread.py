"""Addition by `kernels::add_cuda_thread`, whose library is loaded before this module."""

from kernels.add.operators import add_by

add = add_by("add_cuda_thread", "cuda_thread")
