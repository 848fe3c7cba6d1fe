"""Addition by `kernels::add_cpp`, whose library is loaded before this module."""

from kernels.add.operators import add_by

add = add_by("add_cpp", "cpp")
