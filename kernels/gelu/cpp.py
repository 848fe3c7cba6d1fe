"""GeLU by `kernels::gelu_cpp`, whose library is loaded before this module."""

from kernels.gelu.registration import gelu_by

gelu = gelu_by("gelu_cpp", "cpp")
