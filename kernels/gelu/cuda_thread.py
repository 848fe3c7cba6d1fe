"""GeLU by `kernels::gelu_cuda_thread`, whose library is loaded before this module."""

from kernels.gelu.registration import gelu_by

gelu = gelu_by("gelu_cuda_thread", "cuda_thread")
