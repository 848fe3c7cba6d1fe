"""The promotion table against torch's own."""

import itertools

import pytest
import torch

from runner.op import dtypes

PLAIN = [name for name in dtypes.NAMES if not name.startswith("float8")]


@pytest.mark.parametrize("ndims", [(2, 2), (2, 0), (0, 2), (0, 0)])
def test_promotion_is_torchs(ndims):
    for names in itertools.product(PLAIN, PLAIN):
        tensors = [torch.ones([1] * n, dtype=getattr(torch, name)) for n, name in zip(ndims, names)]
        expected = str(torch.result_type(*tensors)).removeprefix("torch.")
        assert dtypes.promote(list(zip(names, ndims))) == expected, names


def test_sizes_are_torchs():
    for name in dtypes.NAMES:
        assert dtypes.itemsize(name) == getattr(torch, name).itemsize
