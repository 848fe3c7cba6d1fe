"""Distances on the inputs that break kernels: every variant is right, or refuses in one sentence."""

from __future__ import annotations

import functools
import math

import pytest
import torch

from kernels.cdist import points, reference
from runner.op import formula
from tests.support import DEVICE, compare, declared, load, variants

EAGER = [v for v in variants("cdist") if not v.startswith("compile")]
TUNED = ["cuda_small", "cuda_register", "tuned"]  # exact, with gradients
OTHERS = ["naive", "naive_mm", "builtin", "builtin_exact"]
GRADIENT = [*OTHERS, *TUNED, "tuned_mm"]
OWN = [v for v in EAGER if v not in OTHERS]
P = [2.0, 0.0, 1.0, 1.5, 3.0, math.inf]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
EXACT = {"compute_mode": "donot_use_mm_for_euclid_dist"}

# Triton's interpreter computes with numpy, which warns of the log2(0) that makes the right 0.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


class Loaded:
    """A variant with its fixed arguments and what it declares; skips a test of what it does not accept."""

    def __init__(self, name: str) -> None:
        self.variant, self.fn = declared("cdist", name, DEVICE), load("cdist", name)
        self.accuracy = self.variant.accuracy

    def __call__(self, x1, x2, p=2.0):
        names = {
            "p": p,
            "device": DEVICE,
            "batch": max(math.prod(x1.shape[:-2]), math.prod(x2.shape[:-2])),
            "n": x1.shape[-2],
            "m": x2.shape[-2],
            "d": x1.shape[-1],
            "dtype": str(x1.dtype).removeprefix("torch."),
            "direction": "backward" if x1.requires_grad else "forward",
        }
        if self.variant.accepts and not formula.evaluate(self.variant.accepts, names):
            pytest.skip(f"accepts only {self.variant.accepts}")
        return self.fn(x1, x2, p=p, **self.variant.kwargs)

    def assert_right(self, x1, x2, p=2.0, expected=None):
        if expected is None:
            expected = reference.cdist(x1.double(), x2.double(), p=p)
        got = self(x1, x2, p)
        assert compare(got, expected, x1.dtype, str(x1.device), self.accuracy).reason == ""


@pytest.fixture(params=EAGER)
def fn(request):
    return Loaded(request.param)


@pytest.fixture(params=GRADIENT)
def differentiable(request):
    return Loaded(request.param)


@pytest.fixture(params=OWN)
def own(request):
    return Loaded(request.param)


def tensor(values, dtype=torch.float32, grad=False):
    return torch.tensor(values, dtype=dtype, device=DEVICE, requires_grad=grad)


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=_generator(), device=DEVICE).to(dtype)


@functools.cache
def _generator():
    return torch.Generator(DEVICE).manual_seed(0)


def gradients(fn, x1, x2, p, upstream, **kwargs):
    leaves = [x.detach().clone().requires_grad_() for x in (x1, x2)]
    return torch.autograd.grad(fn(*leaves, p=p, **kwargs), leaves, upstream)


# The reference


@pytest.mark.parametrize("p", [*P, 0.5, 2.5])
@pytest.mark.parametrize("shapes", [((7, 3), (9, 3)), ((3, 3, 21, 2), (22, 2)), ((4, 1, 5, 1), (6, 3, 1))])
@pytest.mark.parametrize("piece", [1, 64, reference.PIECE])
def test_reference_is_torch_in_float64(p, shapes, piece, monkeypatch):
    monkeypatch.setattr(reference, "PIECE", piece)
    for scale in (1.0, 0.0):  # 0: whole numbers, so that points and coordinates coincide
        x1, x2 = (randn(*shape, dtype=torch.float64) for shape in shapes)
        x1, x2 = (x if scale else x.round() for x in (x1, x2))
        expected = torch.cdist(x1, x2, p=p, **EXACT)
        torch.testing.assert_close(reference.cdist(x1, x2, p=p), expected, rtol=1e-13, atol=1e-13)
        upstream = randn(*expected.shape, dtype=torch.float64)
        got = gradients(reference.cdist, x1, x2, p, upstream, compute_mode="ignored")
        wanted = gradients(torch.cdist, x1, x2, p, upstream, **EXACT)
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_reference_never_cancels():
    x1, x2 = tensor([[1e9]], torch.float64), tensor([[1e9 + 0.5]], torch.float64)
    assert reference.cdist(x1.expand(30, 1), x2.expand(30, 1)).eq(0.5).all()


# Values


@pytest.mark.parametrize("rows", [1, 30])
def test_near_points_far_from_the_origin(fn, rows):
    x1, x2 = tensor([[512695.0]]).expand(rows, 1), tensor([[512804.0]]).expand(rows, 1)
    y = fn(x1, x2)
    if fn.accuracy == "elementwise":
        assert y.eq(109.0).all()
    else:  # a form that cancels says so, and the check sees what it loses, or it is right here
        lost = compare(y, torch.full_like(y, 109.0).double(), y.dtype, str(y.device), "elementwise")
        assert lost.reason == "" or lost.max_abs_err > 1


def test_points_are_at_distance_0_from_themselves(fn):
    d = torch.rand(2, 30, 2, generator=_generator(), device=DEVICE)
    diagonal = fn(d, d).diagonal(dim1=-2, dim2=-1)
    if fn.accuracy == "elementwise":
        assert diagonal.eq(0).all()
    else:
        assert diagonal.abs().max() < 1e-2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [3, 30])
def test_sums_are_kept_in_float32(fn, dtype, rows):
    x1, x2 = randn(rows, 1025, dtype=dtype), torch.zeros(5, 1025, dtype=dtype, device=DEVICE)
    x1[0] = 1
    x1[0, 0] = 64  # 4096 + 1 is 4096 in half types, 1024 times over
    x1[1] = 8  # and 65600 is more than float16 has
    y, expected = fn(x1, x2), reference.cdist(x1.double(), x2.double())
    assert y[:2].float().mean(1).tolist() == pytest.approx([5120**0.5, 65600**0.5], rel=4e-3)
    assert compare(y, expected, dtype, str(x1.device), fn.accuracy).reason == ""


@pytest.mark.parametrize("p", P)
def test_empty(fn, p):
    n = 8550 if p == 2 else 70
    nowhere = fn(randn(n, 0), randn(1, 0), p)
    assert nowhere.shape == (n, 1) and nowhere.eq(0).all()
    assert fn(randn(n, 4), randn(0, 4), p).shape == (n, 0)
    assert fn(randn(0, 4), randn(3, 4), p).shape == (0, 3)
    assert fn(randn(0, 5, 4), randn(0, 3, 4), p).shape == (0, 5, 3)


def test_short_distance(fn):
    y = fn(tensor([[1.0, 0.0]]), tensor([[math.cos(0.01), math.sin(0.01)]]))
    if fn.accuracy == "elementwise":
        assert y.item() == pytest.approx(0.01, rel=1e-5)
    else:
        assert y.item() == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_p(fn, p, dtype):
    x1, x2 = randn(2, 33, 5, dtype=dtype), randn(2, 140, 5, dtype=dtype)
    x2[:, :33, ::2] = x1[:, :, ::2]  # equal coordinates
    fn.assert_right(x1, x2, p)
    if fn.accuracy == "elementwise":
        wanted = torch.cdist(x1.double(), x2.double(), p=p, **EXACT)
        fn.assert_right(x1, x2, p, expected=wanted)


@pytest.mark.parametrize("p", [0.5, 0.9, 2.5, 7.0])
def test_p_that_no_case_is_written_for(fn, p):
    fn.assert_right(randn(33, 6), randn(40, 6), p)


@pytest.mark.parametrize("p", P)
def test_infinity_and_nan(fn, p):
    if fn.accuracy == "normwise":
        pytest.skip("a matrix product mixes them")
    if p == 0 and DEVICE != "cpu" and fn.variant.name.startswith("builtin"):
        pytest.skip("PyTorch counts a NaN as one difference on a GPU, and as NaN on a CPU")
    x = tensor([[0.0, 0.0], [math.inf, 1.0], [math.nan, 2.0], [-math.inf, 0.0], [3.0, -math.inf]])
    expected = torch.cdist(x.double().cpu(), x.double().cpu(), p=p, **EXACT).to(DEVICE)
    fn.assert_right(x, x, p, expected=expected)


@pytest.mark.parametrize(
    "shapes", [((3, 3, 21, 2), (22, 2)), ((4, 1, 5, 3), (6, 7, 3)), ((5, 3), (2, 30, 3))]
)
def test_batches_broadcast(fn, shapes):
    fn.assert_right(*(randn(*shape) for shape in shapes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides(fn, dtype):
    x1, x2 = randn(2, 5, 33, dtype=dtype).mT, randn(40, 2, 11, dtype=dtype).transpose(0, 1)[..., 1::2]
    fn.assert_right(x1, x2)
    fn.assert_right(randn(67, dtype=dtype)[1:].view(33, 2), randn(70, 2, dtype=dtype)[::2])


# Gradients


def test_gradient_at_equal_points_is_0(differentiable):
    x1, x2 = tensor([[1.0, 2.0], [4.0, 6.0]], grad=True), tensor([[1.0, 2.0]], grad=True)
    differentiable(x1, x2).sum().backward()
    torch.testing.assert_close(x1.grad, tensor([[0.0, 0.0], [0.6, 0.8]]))
    torch.testing.assert_close(x2.grad, tensor([[-0.6, -0.8]]))


def test_equal_coordinate_adds_nothing_to_a_gradient(differentiable):
    x1, x2 = tensor([[1.0, 2.0]], grad=True), tensor([[1.0, 6.0]], grad=True)
    differentiable(x1, x2, p=0.5).backward()
    torch.testing.assert_close(x1.grad, tensor([[0.0, -1.0]]))
    torch.testing.assert_close(x2.grad, tensor([[0.0, 1.0]]))


def test_expanded_gradient(differentiable):
    x1, x2 = tensor([[0.0]], grad=True), tensor([[0.5], [1.0]], grad=True)
    differentiable(x1, x2)[0, 0].backward()
    assert x1.grad.tolist() == [[-1.0]] and x2.grad.tolist() == [[1.0], [0.0]]
    again = torch.autograd.grad(differentiable(x1, x2).sum(), x1)  # an upstream gradient with strides of 0
    assert again[0].tolist() == [[-2.0]]


@pytest.mark.parametrize("p", [*P, 0.5])
@pytest.mark.parametrize("whole", [False, True])
def test_gradients_and_batches_that_broadcast(differentiable, p, whole):
    x1, x2 = randn(3, 3, 21, 2), randn(22, 2)
    if whole:  # points and coordinates coincide
        if differentiable.accuracy == "normwise":
            pytest.skip("coincidence is lost in a matrix product")
        x1, x2 = x1.round(), x2.round()
    upstream = randn(3, 3, 21, 22)
    got = gradients(differentiable, x1, x2, p, upstream)
    wide = gradients(reference.cdist, x1.double(), x2.double(), p, upstream.double())
    for g, w, x in zip(got, wide, (x1, x2)):
        assert g.shape == x.shape
        assert compare(g, w, torch.float32, str(x.device), "normwise").norm_rel_err < 1e-4
        if differentiable.accuracy == "elementwise":
            assert compare(g, w, torch.float32, str(x.device), "elementwise").reason == ""


def test_own_kernels_refuse_what_they_have_no_code_for(own):
    x, wide = randn(3, 2), randn(3, 2, dtype=torch.float64)
    if own.variant.name not in GRADIENT:
        with pytest.raises(NotImplementedError, match=r"^\w+ has no backward kernel: .*\.$"):
            own.fn(x, x.clone().requires_grad_())
    with pytest.raises(
        NotImplementedError, match=r"^cdist takes two inputs of the same dtype\.$|, not float64\.$"
    ):
        own.fn(x, wide)
    with pytest.raises(
        ValueError, match=r"^cdist takes \[\.\., n, d\] and \[\.\., m, d\], not \[3, 2\] and \[3, 5\]\.$"
    ):
        own.fn(x, randn(3, 5))
    with pytest.raises(ValueError, match=r"^p must not be negative, not -1\.0\.$"):
        own.fn(x, x, p=-1.0)


def test_matrix_product_form_is_of_p_2_only():
    with pytest.raises(
        NotImplementedError, match=r"^naive_mm is a form of the Euclidean distance only, .*\.$"
    ):
        load("cdist", "naive_mm")(randn(3, 2), randn(3, 2), p=1.0)


def test_forms_that_cancel_say_so():
    said = {name: declared("cdist", name, DEVICE).accuracy for name in variants("cdist")}
    assert {name for name, accuracy in said.items() if accuracy == "normwise"} == {
        "naive_mm",
        "builtin",
        "compile_mm",
    }


@pytest.fixture(params=TUNED)
def tuned(request):
    return Loaded(request.param)


@pytest.mark.parametrize("d", [1, 3, 4, 5, 8, 16, 17, 33, 64, 70])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(70, 4099), (300, 1030), (129, 260)])
def test_tiles_and_rows_that_start_anywhere(tuned, d, dtype, sizes):
    n, m = sizes
    tuned.assert_right(randn(2, n, d, dtype=dtype), randn(2, m, d, dtype=dtype))
    tuned.assert_right(randn(n * d + 1, dtype=dtype)[1:].view(n, d), randn(m, d, dtype=dtype))


@pytest.mark.parametrize("p", [2.0, 1.5])
@pytest.mark.parametrize("d", [5, 33, 100])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1300, 1301])
def test_more_tiles_than_blocks_at_once(p, d, dtype, m):
    """396 tiles of 128 x 128: a block takes another when it is done with one, of another batch at times."""
    Loaded("cuda_register").assert_right(randn(4, 1030, d, dtype=dtype), randn(4, m, d, dtype=dtype), p)


def terms(x1, x2, p, upstream):
    """[b, n, d], [b, m, d], [b, n, m] -> [b, n, m, d]: what a gradient is the sum of, without signs.

    In float32 each is off by p - 1 times what its distance (up to 3 eps), its difference and their ratio
    (half an eps each) are. For p = 7 some elements owe their size to a few terms far above the root mean
    square, so that this alone exceeds the elementwise rule. PyTorch's own gradient is off by 30 eps of their
    terms' norm.
    """
    ratio = (x1[:, :, None] - x2[:, None]).abs() / reference.cdist(x1, x2, p)[..., None]
    return upstream[..., None] * ratio.nan_to_num(0.0) ** (p - 1)


@pytest.mark.parametrize("p", [*P, 0.5, 7.0])
@pytest.mark.parametrize("d", [3, 16, 70])
def test_gradients_of_more_than_a_tile(tuned, p, d):
    x1, x2, upstream = randn(2, 300, d), randn(2, 1030, d), randn(2, 300, 1030)
    if (
        p == math.inf
    ):  # differences are exact, so that the largest is a tie in float64 wherever it is one here
        x1, x2 = ((x * 4096).round() / 4096 for x in (x1, x2))
    x2[:, 5:9] = x1[:, 2:6]
    got = gradients(tuned, x1, x2, p, upstream)
    wide1, wide2 = x1.double(), x2.double()
    wanted = gradients(reference.cdist, wide1, wide2, p, upstream.double())
    for dim, g, w in zip((2, 1), got, wanted):
        if p == 7.0:
            unit = 2.0**-23 * terms(wide1, wide2, p, upstream.double()).square().sum(dim).sqrt()
            assert ((g - w).abs() <= 6 * (p - 1) * unit).all()
        else:
            assert compare(g, w, g.dtype, str(g.device), "elementwise").reason == ""
    again = gradients(tuned, x1, x2, p, upstream)
    assert all(torch.equal(g, a) for g, a in zip(got, again))


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_half_types(tuned, p, dtype):
    x1, x2, upstream = (randn(*shape, dtype=dtype) for shape in [(2, 40, 9), (150, 9), (2, 40, 150)])
    x2[:7, ::2] = x1[0, :7, ::2]
    got = gradients(tuned, x1, x2, p, upstream)
    wanted = gradients(reference.cdist, x1.double(), x2.double(), p, upstream.double())
    for g, w in zip(got, wanted):
        assert compare(g, w, dtype, str(g.device), "elementwise").reason == ""


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("apart", [1e-3, 1.0])
def test_gradient_of_near_points(tuned, offset, apart):
    """Clusters far apart, or all far from the origin: a product of matrices alone would cancel."""
    centres = 100 * randn(7, 40) + offset
    x1, x2 = (centres.repeat(30, 1) + apart * randn(210, 40) for _ in range(2))
    upstream = randn(210, 210)
    got = gradients(tuned, x1, x2, 2.0, upstream)
    wanted = gradients(reference.cdist, x1.double(), x2.double(), 2.0, upstream.double())
    for g, w in zip(got, wanted):
        assert compare(g, w, g.dtype, str(g.device), "elementwise").reason == ""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [20, 64, 150])
def test_gradient_of_the_form_on_tensor_cores(dtype, d):
    x1, x2, upstream = (randn(*shape, dtype=dtype) for shape in [(2, 1, 70, d), (3, 300, d), (2, 3, 70, 300)])
    x2[:, 5:9] = x1[0, 0, 2:6]
    got = gradients(Loaded("tuned_mm"), x1, x2, 2.0, upstream)
    wanted = gradients(reference.cdist, x1.double(), x2.double(), 2.0, upstream.double())
    for g, w in zip(got, wanted):
        assert compare(g, w, dtype, str(g.device), "elementwise").reason == ""


@pytest.mark.parametrize("d", [3, 40])
def test_gradient_where_there_are_no_others(tuned, d):
    x1, x2 = randn(5, d), randn(0, d)
    first, second = gradients(tuned, x1, x2, 2.0, randn(5, 0))
    assert first.eq(0).all() and first.shape == x1.shape and second.shape == x2.shape


@pytest.mark.parametrize("sizes", [(1, 1), (33, 70), (257, 32), (300, 1028), (31, 2049)])
@pytest.mark.parametrize("d", [17, 64, 100])
def test_gradient_of_steps_and_tiles_that_are_not_full(d, sizes):
    x1, x2, upstream = randn(sizes[0], d), randn(sizes[1], d), randn(*sizes)
    got = gradients(Loaded("tuned"), x1, x2, 2.0, upstream)
    wanted = gradients(reference.cdist, x1.double(), x2.double(), 2.0, upstream.double())
    for g, w in zip(got, wanted):
        assert compare(g, w, g.dtype, str(g.device), "elementwise").reason == ""


def test_no_second_derivative(tuned):
    x1 = randn(5, 3).requires_grad_()
    (slope,) = torch.autograd.grad(tuned(x1, randn(4, 3)).sum(), x1, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"^kernels::cdist_backward can be differentiated once"):
        slope.sum().backward()


@pytest.mark.parametrize(
    "batches",
    [((), ()), ((1,), (5,)), ((5,), ()), ((3, 4), (4,)), ((4, 1), (6,)), ((2, 3, 1), (5,)), ((1, 2), (3, 1))],
)
def test_batches_broadcast_without_copies(batches):
    x1, x2 = (randn(*batch, n, 2) for batch, n in zip(batches, (3, 4)))
    seen = []

    def kernel(a, b):
        seen.extend([(a, x1), (b, x2)])
        return reference.cdist(a, b)

    y = points.over_broadcast(kernel, x1, x2)
    assert torch.equal(y, reference.cdist(x1, x2))
    for given, x in seen:
        assert given.dim() == 4 and given.numel() == x.numel() and given.data_ptr() == x.data_ptr()


def test_batches_that_broadcast_in_more_ways_are_copied():
    x1, x2 = randn(2, 1, 4, 3, 2), randn(1, 3, 4, 5, 2)
    y = points.over_broadcast(reference.cdist, x1, x2)
    assert torch.equal(y, reference.cdist(x1, x2))


@pytest.mark.parametrize("options", [(), (True,), (False,)])
@pytest.mark.parametrize("p", [2.0, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_operator_with_gradient_is_well_formed(options, p, dtype):
    load("cdist", "tuned")
    operator = torch.ops.kernels.cdist_register if options else torch.ops.kernels.cdist_small
    x1, x2 = randn(2, 1, 5, 4, dtype=dtype).requires_grad_(), randn(1, 3, 6, 4, dtype=dtype).requires_grad_()
    torch.library.opcheck(operator.default, (x1, x2, p, *options))


@pytest.mark.parametrize("product", [True, False])
def test_operator_of_the_gradient_is_well_formed(product):
    load("cdist", "tuned")
    args = randn(2, 5, 6), randn(2, 5, 4), randn(2, 6, 4), randn(2, 5, 6).abs(), 2.0, True, product
    torch.library.opcheck(torch.ops.kernels.cdist_backward.default, args)


@pytest.mark.parametrize("name", ["cuda_thread", "cpp"])
@pytest.mark.parametrize("p", [2.0, 1.5])
def test_operator_is_well_formed(name, p):
    load("cdist", name)
    operator = {"cuda_thread": "cdist_thread", "cpp": "cdist_cpp"}[name]
    torch.library.opcheck(getattr(torch.ops.kernels, operator).default, (randn(2, 3, 4), randn(2, 5, 4), p))


@pytest.mark.slow
@pytest.mark.parametrize("p", [2.0, math.inf])
def test_compiled_form(p):
    compiled = Loaded("compile")
    x1, x2 = randn(33, 5).round(), randn(40, 5).round()
    upstream = randn(33, 40)
    compiled.assert_right(x1, x2, p)
    got = gradients(compiled, x1, x2, p, upstream)
    wide = gradients(reference.cdist, x1.double(), x2.double(), p, upstream.double())
    assert [compare(g, w, g.dtype, str(g.device), "elementwise").reason for g, w in zip(got, wide)] == [
        "",
        "",
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("name", [v for v in variants("cdist") if v not in ("cpp", "builtin_exact")])
def test_2_31_outputs(name):
    fn = Loaded(name)
    a = torch.rand(32, 8192, 3, device=DEVICE)
    y = fn(a, a)
    assert y.shape == (32, 8192, 8192) and y.isfinite().all()
    for i in (0, 31):
        wanted = reference.cdist(a[i, -100:].double(), a[i].double())
        assert compare(y[i, -100:], wanted, y.dtype, str(y.device), fn.accuracy).reason == ""


@pytest.mark.gpu
@pytest.mark.parametrize("name", [v for v in OWN if v != "cpp"])
@pytest.mark.parametrize("shape", [(70001, 2, 3, 2), (1, 70001, 3, 2), (1, 3, 70001, 2)])
def test_more_than_a_grid_has_in_y_or_z(name, shape):
    batch, n, m, d = shape
    Loaded(name).assert_right(randn(batch, n, d), randn(batch, m, d))
