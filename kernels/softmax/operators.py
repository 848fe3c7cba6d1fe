"""The operators of `csrc/softmax/{forward,backward,strided}_bindings.cpp`, loaded before this.

Those called strided work along the dim that they are given, from 0 on; the others along the last. The first
five have a gradient.
"""

from __future__ import annotations

import torch

from kernels.softmax.registration import contiguous, softmax_by

vector = softmax_by("softmax_vector")
online = softmax_by("softmax_online")
cluster = softmax_by("softmax_cluster")  # (x, blocks, threads)
ring = softmax_by("softmax_ring")  # (x, team)
tuned = softmax_by("softmax_tuned")
staged = torch.ops.kernels.softmax_staged.default
strided = torch.ops.kernels.softmax_strided.default
strided_stream = torch.ops.kernels.softmax_strided_stream.default
strided_cluster = torch.ops.kernels.softmax_strided_cluster.default  # (x, dim, cluster, columns)
strided_online = torch.ops.kernels.softmax_strided_online.default
strided_tuned = torch.ops.kernels.softmax_strided_tuned.default

for _operator in (staged, strided, strided_stream, strided_cluster, strided_online, strided_tuned):
    torch.library.register_fake(_operator.name(), contiguous)
