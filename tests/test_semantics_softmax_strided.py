"""Softmax down the columns: every way in which they fall on threads, blocks and clusters."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support import DEVICE, compare, load

CHUNKED = ["triton_strided", "cuda_strided_online", "cuda_strided", "cuda_strided_stream"]
NAMES = [*CHUNKED, "cuda_strided_cluster", "tuned"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
INF = math.inf

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


@pytest.fixture(params=NAMES)
def fn(request):
    return load("softmax", request.param)


def randn(*shape, dtype=torch.float32):
    generator = torch.Generator(DEVICE).manual_seed(0)
    return torch.randn(shape, generator=generator, device=DEVICE).to(dtype)


def assert_right(fn, x, dim, **how):
    expected = torch.softmax(x.double(), dim)
    assert compare(fn(x, dim=dim, **how), expected, x.dtype, str(x.device), "elementwise").reason == ""


# Powers of two and what is not, less than a vector, more than a chunk.
@pytest.mark.parametrize("inner", [1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 33, 64, 65, 200])
@pytest.mark.parametrize("dtype", DTYPES)
def test_inner_sizes(fn, inner, dtype):
    assert_right(fn, randn(3, 37, inner, dtype=dtype), 1)
    assert_right(fn, randn(64, inner, dtype=dtype), 0)


@pytest.mark.parametrize("length", [1, 2, 31, 100, 1023, 1025])
@pytest.mark.parametrize("inner", [3, 8])
def test_lengths(fn, length, inner):
    assert_right(fn, randn(2, length, inner), 1)


@pytest.mark.parametrize("chunk", [32, 64, 128])
@pytest.mark.parametrize("inner", [1, 6, 40, 96])
@pytest.mark.parametrize("name", CHUNKED)
def test_chunks(name, chunk, inner):
    assert_right(load("softmax", name), randn(2, 130, inner, dtype=torch.bfloat16), 1, chunk=chunk)


@pytest.mark.parametrize("inner", [2, 3, 24])
def test_columns_that_do_not_fit_are_read_twice(fn, inner):
    assert_right(fn, randn(1, 70001, inner, dtype=torch.bfloat16), 1)


@pytest.mark.parametrize("inner", [1, 2, 3, 4, 8, 9, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_starts_between_two_vectors(fn, inner, dtype):
    for offset in (1, 2, 7):
        x = randn(3 * 50 * inner + offset, dtype=dtype)[offset:].view(3, 50, inner)
        assert_right(fn, x, 1)


def test_other_strides(fn):
    x = randn(3, 20, 40)
    assert_right(fn, x[:, :, 8:24], 1)  # columns of rows that lie apart
    assert_right(fn, x[:, ::2], 1)
    assert_right(fn, x[:, 1:, 1:], 1)
    assert_right(fn, x.permute(1, 2, 0), 1)
    assert_right(fn, x.permute(2, 0, 1), 0)
    assert_right(fn, x.expand(2, 3, 20, 40).transpose(0, 1), 2)
    assert_right(fn, randn(4, 1, 24).expand(4, 30, 24), 1)


def test_more_dims(fn):
    x = randn(2, 3, 11, 5, 4)
    for dim in range(-5, 5):
        assert_right(fn, x, dim)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_column_stays_alone(fn, dtype):
    """Infinities and NaN of one column do not reach its neighbours, whatever shares a vector or a lane."""
    for inner in (2, 5, 8, 33):
        x = randn(2, 70, inner, dtype=dtype)
        x[0, :, 0] = -INF
        x[1, 3, 1] = INF
        x[1, 69, 0] = math.nan
        x[0, 5:, 1] = -INF
        assert_right(fn, x, 1)
        y = fn(x, dim=1)
        assert y[0, :, 0].isnan().all() and y[1, :, :2].isnan().all()
        assert y.isnan().sum() == 3 * 70


def test_large_values(fn):
    x = randn(2, 66, 6) * 1e4
    x[0, 1:] = torch.finfo(torch.float32).min
    x[1, :, 0] = 3e38
    assert_right(fn, x, 1)


def test_the_result_is_contiguous_and_the_input_is_left_alone(fn):
    x = randn(4, 130, 24)
    before = x.clone()
    assert fn(x, dim=1).is_contiguous()
    assert torch.equal(x, before)


def test_dim_that_is_not_there(fn):
    with pytest.raises(IndexError):
        fn(randn(3, 4), dim=2)


# A cluster of each size, and columns that only the last of its blocks ends.
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1000, 1024, 2500, 4096, 9000, 16384])
@pytest.mark.parametrize("inner", [1, 2, 3, 4, 8, 16, 30, 32, 64, 264])
def test_tiles_of_many_blocks(fn, length, inner, dtype):
    assert_right(fn, randn(3, length, inner, dtype=dtype), 1)


@pytest.mark.gpu
@pytest.mark.parametrize("block", [64, 128, 256, 512])
@pytest.mark.parametrize("chunk", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_block_and_chunk(block, chunk, dtype):
    fn = load("softmax", "cuda_strided")
    for shape in ((5, 1024, 64), (5, 4096, 64), (700, 60, 4), (5, 1000, 6), (3, 4096, 1)):
        assert_right(fn, randn(*shape, dtype=dtype), 1, chunk=chunk, block=block)


# Blocks of each size, clusters of each, tiles that come ahead of need and not.
@pytest.mark.gpu
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("chunk", [32, 64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_stream(chunk, ahead, dtype):
    fn = load("softmax", "cuda_strided_stream")
    for shape in (
        (700, 1024, 64),
        (3000, 120, 2),
        (350, 4096, 64),
        (40, 3000, 40),
        (300, 1000, 8),
        (2, 8192, 72),
    ):
        assert_right(fn, randn(*shape, dtype=dtype), 1, chunk=chunk, ahead=ahead)


# Rows of words of each block, of both parities, and none that repeats at a power of two.
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "length, inner", [(41, 3), (5001, 3), (999, 17), (1000, 33), (1001, 63), (3001, 5), (6000, 6)]
)
@pytest.mark.parametrize("offset", [0, 1])
def test_rows_of_words(length, inner, offset, dtype):
    outer = 301
    x = randn(outer * length * inner + offset, dtype=dtype)[offset:].view(outer, length, inner)
    x[0, :, 0] = -INF
    x[-1, 3, inner - 1] = INF
    x[5, length - 1, inner - 1] = 3e38 if dtype != torch.float16 else 6e4
    for name in ("cuda_strided_stream", "tuned"):
        assert_right(load("softmax", name), x, 1)


@pytest.mark.gpu
def test_many_columns_and_outer_indices(fn):
    assert_right(fn, randn(70001, 9, 3), 1)
    assert_right(fn, randn(3, 9, 700001), 1)


# A cluster of each size, tiles of each width: columns past the last vector, blocks that have no row.
@pytest.mark.gpu
@pytest.mark.parametrize("cluster", [0, 1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("columns", [0, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_cluster_tile(cluster, columns, dtype):
    fn = load("softmax", "cuda_strided_cluster")
    fitting = [(700, 60, 16), (5, 128, 8), (3, 100, 264), (1, 7, 264), (2, 1, 24)]
    if (cluster or 16) >= 8:
        fitting += [(3, 1024, 128), (2, 1000, 40)]
    for shape in fitting:
        assert_right(fn, randn(*shape, dtype=dtype), 1, cluster=cluster, columns=columns)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [500, 1000, 2500, 4096, 4097, 9000, 16384, 32768, 70001])
@pytest.mark.parametrize("inner", [8, 40, 264])
def test_tiles_of_clusters_of_every_length(length, inner, dtype):
    assert_right(load("softmax", "cuda_strided_cluster"), randn(3, length, inner, dtype=dtype), 1)


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", [1, 2, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_column_of_a_cluster_stays_alone(cluster, dtype):
    x = randn(2, 700, 40, dtype=dtype)
    x[0, :, 0] = -INF
    x[1, 3, 1] = INF
    x[1, 699, 8] = math.nan
    x[0, 5:, 2] = -INF
    x[1, :-1, 3] = torch.finfo(dtype).min
    x[0, 350, 4] = torch.finfo(dtype).max
    x[0, :, 5] *= 1e4
    fn = load("softmax", "cuda_strided_cluster")
    assert_right(fn, x, 1, cluster=cluster)
    assert fn(x, dim=1, cluster=cluster).isnan().sum() == 3 * 700 + x[0, :, 5].isinf().any() * 700


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_of_clusters_that_start_anywhere(dtype):
    fn = load("softmax", "cuda_strided_cluster")
    assert_right(fn, randn(3 * 50 * 16 + 1, dtype=dtype)[1:].view(3, 50, 16), 1)
    x = randn(3, 20, 48, dtype=dtype)
    assert_right(fn, x[:, :, 8:24], 1)
    assert_right(fn, x[:, :, 9:25], 1)
    assert_right(fn, x[:, ::2], 1)
    assert_right(fn, x.permute(0, 2, 1)[:, :, :16], 1)
    assert_right(fn, randn(4, 1, 24, dtype=dtype).expand(4, 30, 24), 1)
    assert fn(x[:0], dim=1).shape == (0, 20, 48)


@pytest.mark.gpu
def test_clusters_beyond_32_bits():
    x = torch.empty(2**31 // (1024 * 64) + 1, 1024, 64, dtype=torch.bfloat16, device=DEVICE).normal_()
    y = load("softmax", "cuda_strided_cluster")(x, dim=1)
    expected = torch.softmax(x[-1:].double(), 1)
    assert compare(y[-1:], expected, x.dtype, str(x.device), "elementwise").reason == ""
    assert (y.sum(1, dtype=torch.float32) - 1).abs().max() < 0.02


@pytest.mark.gpu
def test_what_clusters_refuse():
    fn = load("softmax", "cuda_strided_cluster")
    with pytest.raises(RuntimeError, match="cluster"):
        fn(randn(3, 20, 8), dim=1, cluster=17)
    with pytest.raises(RuntimeError, match="bytes of columns"):
        fn(randn(3, 20, 8), dim=1, columns=48)
    for x, how in (
        (randn(3, 4096, 32), {"cluster": 1, "columns": 128}),
        (randn(3, 20, 6), {"cluster": 2}),
        (randn(3, 20, 6), {"columns": 32}),
    ):
        with pytest.raises(RuntimeError, match="did not launch"):
            fn(x, dim=1, **how)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "operator",
    [
        ("softmax_strided", 64, 0),
        ("softmax_strided_stream", 64, True),
        ("softmax_strided_cluster", 0, 0),
        ("softmax_strided_online", 64),
        ("softmax_strided_tuned",),
    ],
)
def test_operator_is_well_formed(operator):
    load("softmax", "tuned")
    name, *how = operator
    torch.library.opcheck(getattr(torch.ops.kernels, name).default, (randn(3, 33, 4), 1, *how))
