"""The operators of `csrc/softmax/forward_bindings.cpp` and `strided_bindings.cpp`, loaded before this.

Those of the second work along the dim that they are given, from 0 on; the others along the last.
"""

from __future__ import annotations

import torch

vector = torch.ops.kernels.softmax_vector.default
online = torch.ops.kernels.softmax_online.default
cluster = torch.ops.kernels.softmax_cluster.default
ring = torch.ops.kernels.softmax_ring.default
pipeline = torch.ops.kernels.softmax_pipeline.default
tuned = torch.ops.kernels.softmax_tuned.default
strided = torch.ops.kernels.softmax_strided.default
strided_online = torch.ops.kernels.softmax_strided_online.default
strided_tuned = torch.ops.kernels.softmax_strided_tuned.default


def _contiguous(x: torch.Tensor, *how: int) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


for _operator in (vector, online, cluster, ring, pipeline, tuned, strided, strided_online, strided_tuned):
    torch.library.register_fake(_operator.name(), _contiguous)
