"""Distances on tensor cores: what the pieces keep, which pairs are computed again, how right the rest is."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.cdist import reference
from tests.support import DEVICE, load

FORMS = ["triton_mma", "cuda_mma", "tuned_mm"]
EPS = torch.finfo(torch.float32).eps

# Triton's interpreter computes with numpy, which warns where the kernel means to leave float32's range.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


@pytest.fixture(params=FORMS)
def fn(request):
    return load("cdist", request.param)


def randn(*shape, seed=0):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=DEVICE)


def worst(got, x1, x2):
    """The largest error of a distance in units of itself; distances of 0 must be 0."""
    right = reference.cdist(x1.double(), x2.double())
    assert got.isfinite().all() and got[right == 0].eq(0).all()
    return ((got.double() - right).abs() / right.clamp_min(1e-300)).max().item()


def clusters(n, d, centres, spread, seed=0):
    middle = 10 * randn(centres, d, seed=seed)
    return middle[torch.arange(n, device=DEVICE) % centres] + spread * randn(n, d, seed=seed + 1)


# Each distance is right to 32 eps of itself, which is stricter than the check's rule


@pytest.mark.parametrize("d", [1, 5, 64, 65, 128])
def test_normal_points(fn, d):
    x1, x2 = randn(70, d), randn(150, d, seed=1)
    assert worst(fn(x1, x2), x1, x2) < 32 * EPS


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-6])
def test_pairs_that_are_near(fn, spread):
    x = clusters(66, 40, centres=3, spread=spread)
    assert worst(fn(x, x), x, x) < 32 * EPS


def test_all_points_equal(fn):
    x = randn(1, 20).expand(40, 20)
    assert fn(x, x).eq(0).all()


def test_common_offset(fn):
    x1, x2 = randn(40, 64) + 1000, randn(50, 64, seed=1) + 1000
    assert worst(fn(x1, x2), x1, x2) < 32 * EPS


@pytest.mark.parametrize("scale", [1e30, 1e15, 1e-15, 1e-30, 1e-37])
def test_scales_whose_squares_leave_float32(fn, scale):
    x1, x2 = randn(20, 20) * scale, randn(30, 20, seed=1) * scale
    assert worst(fn(x1, x2), x1, x2) < 32 * EPS


def test_rows_of_other_sizes(fn):
    x = randn(48, 20)
    x[::4] *= 1e12  # more than float16 holds in the unit of the others
    x[1::4] *= 1e-9  # less
    x[2::4] = 0
    assert worst(fn(x, x), x, x) < 32 * EPS


def test_sample_of_zeros(fn):
    x = torch.zeros(64, 20, device=DEVICE)
    x[33] = randn(20)
    assert worst(fn(x, x), x, x) < 32 * EPS


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_point_that_is_not_finite_spoils_its_own_row(fn, value):
    x1, x2 = randn(40, 20), randn(50, 20, seed=1)
    x1[7, 3] = value
    y = fn(x1, x2)
    assert not y[7].isfinite().any()
    rest = torch.arange(40, device=DEVICE) != 7
    assert worst(y[rest], x1[rest], x2) < 32 * EPS


@pytest.mark.parametrize("m", [1, 3, 129])
def test_columns_that_do_not_fill_a_tile(fn, m):
    x1, x2 = randn(3, 65, 20), randn(m, 20, seed=1)
    assert worst(fn(x1, x2), x1, x2) < 32 * EPS


def test_p_is_2(fn):
    with pytest.raises(NotImplementedError, match=r"^\w+ is a form of the Euclidean distance only, .*\.$"):
        fn(randn(3, 2), randn(3, 2), p=1.0)


def test_deep_points():
    x1, x2 = randn(20, 1100).abs(), randn(20, 1100, seed=1).abs()  # products of one sign: sums only grow
    assert worst(load("cdist", "triton_mma")(x1, x2), x1, x2) < 32 * EPS


# What the product reads


def prepared(x1, x2):
    load("cdist", "triton_mma")  # in the interpreter where there is no GPU
    from kernels.cdist.mma_operands import prepare

    return prepare(x1, x2, torch.empty(1, dtype=torch.int32, device=DEVICE), 2)


def test_pieces_keep_22_bits_of_a_point_off_one_centre():
    x1, x2 = randn(1, 40, 70) + 5, randn(1, 50, 70, seed=1) + 5
    made = prepared(x1, x2)
    unit = made.unit.double()
    points = [p[:, : made.depth].double() + p[:, made.depth :].double() for p in (made.pieces1, made.pieces2)]
    centre = x1[0, 0].double() - points[0][0, :70] * unit
    for x, p, norm in zip((x1, x2), points, (made.norm1, made.norm2)):
        off = (p[:, :70] * unit + centre - x[0].double()).abs()
        assert (off / (x[0].double() - centre).abs().clamp_min(1)).max() < 2**-20
        assert p[:, 70:].eq(0).all()
        torch.testing.assert_close(norm.double(), (p * unit).square().sum(1), rtol=EPS, atol=0)
    assert centre.mean().item() == pytest.approx(5, abs=0.2)


def test_points_that_all_batches_share_are_not_copied():
    load("cdist", "triton_mma")
    from kernels.cdist.mma_operands import pair_up

    x1, x2 = randn(3, 2, 5, 4), randn(6, 4)
    y1, y2, shape = pair_up("it", x1, x2, 2.0, (torch.float32,))
    assert y1.data_ptr() == x1.data_ptr() and y2.data_ptr() == x2.data_ptr()
    assert (y1.shape, y2.shape, shape) == ((6, 5, 4), (1, 6, 4), (3, 2, 5, 6))


@pytest.mark.parametrize(
    ("name", "operator"), [("triton_mma", "cdist_triton_mma"), ("cuda_mma", "cdist_mma")]
)
def test_operator_is_well_formed(name, operator):
    load("cdist", name)
    for x2 in (randn(2, 40, 20), randn(1, 40, 20)):
        torch.library.opcheck(getattr(torch.ops.kernels, operator).default, (randn(2, 30, 20), x2))


@pytest.mark.gpu
def test_cuda_mma_is_of_shallow_points():
    with pytest.raises(NotImplementedError, match=r"^cuda_mma takes at most 128 coordinates, not 129\.$"):
        load("cdist", "cuda_mma")(randn(3, 129), randn(3, 129))
