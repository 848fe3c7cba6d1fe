"""Softmax on the inputs that break kernels: every variant is right, or refuses in one sentence."""

from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch

from tests.support import DEVICE, compare, load, variants

EAGER = [v for v in variants("softmax") if not v.startswith("compile")]
OWN = [v for v in EAGER if v not in ("naive", "builtin")]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
INF = math.inf
FORWARD_ONLY = [
    "cuda_staged",
    "cuda_strided",
    "cuda_strided_online",
    "cuda_strided_cluster",
    "triton_strided",
]

# Triton's interpreter computes with numpy, which warns of the -inf - -inf that makes the right NaN.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


@pytest.fixture(params=EAGER)
def fn(request):
    return load("softmax", request.param)


@pytest.fixture(params=OWN)
def own(request):
    return load("softmax", request.param)


def tensor(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def randn(*shape, dtype=torch.float32):
    generator = torch.Generator(DEVICE).manual_seed(0)
    return torch.randn(shape, generator=generator, device=DEVICE).to(dtype)


def widest(name, dtype=torch.float32):
    """Elements of a row that a variant holds."""
    most = {
        "triton_row": 1 << 20,
        "cuda_vector": 65536 // dtype.itemsize,
        "cuda_cluster": 262136,
        "cuda_staged": 3669760 // dtype.itemsize,
    }
    return most.get(name, INF)


def wide(cols, dtype=torch.float32):
    return [name for name in EAGER if widest(name, dtype) >= cols]


def assert_right(fn, x, dim=-1):
    expected = torch.softmax(x.double(), dim)
    assert compare(fn(x, dim=dim), expected, x.dtype, str(x.device), "elementwise").reason == ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_row_of_minus_infinity_is_nan_in_that_row_only(fn, dtype):
    x = randn(3, 70, dtype=dtype)
    x[1] = -INF
    y = fn(x, dim=-1)
    assert y[1].isnan().all() and y[[0, 2]].isfinite().all()
    assert_right(fn, x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tail_of_minus_infinity_gets_zero(fn, dtype):
    x = randn(2, 8192, dtype=dtype)
    x[:, 8:] = -INF
    assert fn(x, dim=-1)[:, 8:].eq(0).all()
    assert_right(fn, x)


def test_plus_infinity_and_nan_are_as_in_torch(fn):
    x = tensor([[0.0, INF, 1.0], [0.0, 2.0, 1.0], [0.0, math.nan, -INF], [math.nan] * 3])
    assert fn(x, dim=-1).isnan().any(-1).tolist() == [True, False, True, True]
    assert_right(fn, x)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0), (2, 0, 3)])
@pytest.mark.parametrize("dim", [0, -1])
def test_empty(fn, shape, dim):
    assert fn(torch.empty(shape, device=DEVICE), dim=dim).shape == shape


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_number_without_dims_is_one(fn, dim, dtype):
    y = fn(tensor(3.0, dtype), dim=dim)
    assert y.shape == () and y.dtype == dtype and y.item() == 1.0


@pytest.mark.parametrize("dim", [0, 1, -2, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed(fn, dim, dtype):
    assert_right(fn, randn(70, 33, dtype=dtype).t(), dim)


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -4])
def test_any_dim_of_permuted_and_expanded(fn, dim):
    x = randn(3, 5, 1, 4)
    assert_right(fn, x.permute(2, 0, 3, 1), dim)
    assert_right(fn, x.expand(3, 5, 6, 4)[::2, :, 1:], dim)


@pytest.mark.parametrize("dim", [1, -2])
def test_dim_that_is_not_there(own, dim):
    with pytest.raises(IndexError):
        own(randn(3), dim=dim)


@pytest.mark.parametrize("cols", [65537, 131072, 1048576, 1048577])
@pytest.mark.parametrize("name", EAGER)
def test_wide_rows(name, cols):
    fn = load("softmax", name)
    x = randn(2, cols)
    if cols > widest(name):
        sentence = rf"^{name} holds at most {widest(name)} .* not {cols}\.$"
        with pytest.raises(NotImplementedError, match=sentence):
            fn(x, dim=-1)
    else:
        assert_right(fn, x)


@pytest.mark.parametrize("name", wide(131073))
def test_wide_rows_that_begin_with_minus_infinity(name):
    x = randn(3, 131073)
    x[:, :100000] = -INF
    x[1] = -INF
    y = load("softmax", name)(x, dim=-1)
    assert y[1].isnan().all() and y[[0, 2]].isfinite().all()
    assert_right(load("softmax", name), x)


@pytest.mark.parametrize("name", wide(70001))
def test_wide_rows_that_are_not_aligned(name):
    fn = load("softmax", name)
    assert_right(fn, randn(3, 70001, dtype=torch.bfloat16)[:, 1:])
    assert_right(fn, randn(2 * 70000 + 1)[1:].view(2, 70000))
    assert_right(fn, randn(300, 20003)[:, 3:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [2, 8, 1001, 1023])
def test_rows_that_are_not_aligned(fn, cols, dtype):
    assert_right(fn, randn(5, cols, dtype=dtype)[:, 1:])
    contiguous = randn(5 * cols + 1, dtype=dtype)[1:].view(5, cols)
    assert contiguous.data_ptr() % 16 and contiguous.is_contiguous()
    assert_right(fn, contiguous)


@pytest.mark.parametrize("name", ["builtin", "cuda_row", "tuned", "cpp"])
def test_float64_rows_that_lie_apart(name):
    assert_right(load("softmax", name), randn(5, 1001, dtype=torch.float64)[:, 1:])


# Each width is another number of lanes, vectors or blocks; as many rows as leave the last block part empty.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.gpu
def test_every_width_of_the_designs(own, dtype):
    for vectors in (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 640, 768, 1024, 1152, 2048, 3072, 4096):
        cols = vectors * 16 // dtype.itemsize
        assert_right(own, randn(7, cols, dtype=dtype))
        assert_right(own, randn(7, cols - 1, dtype=dtype))


# What can be asked of the two designs whose blocks share rows; more rows than are in flight at once.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [32768, 32769, 65536, 131072, 131073])
@pytest.mark.gpu
def test_every_cluster(cols, dtype):
    x = randn(700, cols, dtype=dtype)
    x[1] = -INF
    x[699, 5:] = -INF
    for blocks, threads in itertools.product((2, 4, 8, 16), (256, 512, 1024)):
        each = threads * (16 if cols % 8 and threads == 1024 else 32)  # elements of a block
        if blocks * each < cols + 8:
            continue
        assert_right(partial(load("softmax", "cuda_cluster"), blocks=blocks, threads=threads), x)
    for cluster in (1, 2, 3, 4, 8, 13, 16):
        if cols * dtype.itemsize // cluster < 220_000:
            assert_right(partial(load("softmax", "cuda_staged"), cluster=cluster), x)


# Rows of every start between two lines of 128 bytes, and inputs that lie otherwise than their outputs.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cuda_staged", "cuda_ring"])
@pytest.mark.gpu
def test_every_start_of_a_row(name, dtype):
    fn = load("softmax", name)
    for cols in (1, 9, 511, 20480, 20481, 20487):
        assert_right(fn, randn(130, cols, dtype=dtype))
        for start in range(1, 9):
            assert_right(fn, randn(3, cols + start, dtype=dtype)[:, start:])


@pytest.mark.parametrize("cols", [1, 31, 32, 33, 255, 256, 257, 1025])
def test_rows_that_fill_no_whole_warp_or_block(fn, cols):
    assert_right(fn, randn(3, cols))


def test_large_and_small_values(fn):
    assert_right(fn, tensor([[1e4, 1e4 - 1, -3e38], [-1e4, -1e4 - 1, 3e38], [1e-40, 0.0, -1e-40]]))
    lowest = torch.finfo(torch.float32).min  # what masks are made of
    assert_right(fn, tensor([[lowest] * 3, [lowest, -INF, lowest], [lowest, 0.0, 2e7], [3e6, 3e6 - 1, -3e6]]))


@pytest.mark.parametrize("name", wide(393216))
def test_zeros_are_refused_where_outputs_are_tiny(name):
    fn = load("softmax", name)
    x = randn(2, 393216) * 0.1
    expected = torch.softmax(x.double(), -1)
    assert expected.max() < 5e-6
    assert compare(torch.zeros_like(x), expected, x.dtype, str(x.device), "elementwise").reason
    assert_right(fn, x)


def test_input_is_left_alone(fn):
    x = randn(5, 33)
    before = x.clone()
    fn(x, dim=0)
    assert torch.equal(x, before)


def test_own_kernels_refuse_integers(own):
    with pytest.raises(NotImplementedError, match=r"^\w+ takes float32, .*, not int64\.$"):
        own(torch.ones(3, 4, dtype=torch.int64, device=DEVICE), dim=-1)


@pytest.mark.parametrize("name", FORWARD_ONLY)
def test_kernels_without_a_gradient_refuse_to_be_recorded(name):
    fn = load("softmax", name)
    with pytest.raises(NotImplementedError, match=r"^\w+ has no backward kernel: .*\.$"):
        fn(randn(3, 4).requires_grad_(), dim=-1)
    with torch.no_grad():
        assert_right(fn, randn(3, 4).requires_grad_())


def test_operator_without_a_gradient_is_well_formed():
    load("softmax", "cuda_staged")
    torch.library.opcheck(torch.ops.kernels.softmax_staged.default, (randn(3, 33), 0))


@pytest.mark.slow
def test_compiled_form():
    fn = load("softmax", "compile")
    x = randn(9, 1001)
    x[1] = -INF
    x[2, 8:] = -INF
    x[3, 5] = INF
    assert_right(fn, x)
    assert_right(fn, x.t(), 0)


@pytest.mark.gpu
def test_row_that_just_misses_the_rings_shared_memory():
    """Of an H200, on which one that held it would be 32 bytes too large."""
    assert_right(load("softmax", "tuned"), randn(1, 3788601))


@pytest.mark.gpu
def test_launch_that_failed_is_not_held_against_the_next():
    fn, x = load("softmax", "cuda_ring"), randn(2, 64)
    with pytest.raises(RuntimeError, match="did not launch"):
        fn(x, dim=-1, team=torch.cuda.get_device_properties(x.device).multi_processor_count + 1)
    assert_right(load("softmax", "cuda_vector"), x)


@pytest.mark.gpu
@pytest.mark.parametrize("name", variants("softmax"))
def test_more_than_2_31_elements(name):
    fn = load("softmax", name)
    cols = 65536 if widest(name, torch.bfloat16) >= 65536 else 32768
    x = torch.randn(2**31 // cols + 1, cols, dtype=torch.bfloat16, device=DEVICE)
    y = fn(x, dim=-1)
    for rows in y.split(1024):
        assert (rows.double().sum(-1) - 1).abs().max() < 1e-2
    assert_right(lambda last, dim: y[-3:], x[-3:])


@pytest.mark.gpu
@pytest.mark.parametrize("name", [v for v in OWN if v != "cpp"])
def test_more_rows_than_a_grid_has_in_y(name):
    assert_right(load("softmax", name), randn(70001, 5))
    assert_right(load("softmax", name), randn(5, 70001), 0)
