"""Softmax along the last dim by the operators of two files of `csrc/softmax`, loaded before this.

They are `forward_bindings.cpp` and `backward_bindings.cpp`.
"""

from __future__ import annotations

from kernels.softmax.registration import softmax_by

vector = softmax_by("softmax_vector")
online = softmax_by("softmax_online")
cluster = softmax_by("softmax_cluster")
ring = softmax_by("softmax_ring")  # (x, team)
tuned = softmax_by("softmax_tuned")
