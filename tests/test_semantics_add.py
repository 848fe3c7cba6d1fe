"""Addition on the inputs that break kernels: every variant is right, or refuses in one sentence."""

from __future__ import annotations

import pytest
import torch

from runner.check import compare
from tests.support import DEVICE, load, variants

EAGER = [v for v in variants("add") if not v.startswith("compile")]
OWN = [v for v in EAGER if v not in ("naive", "builtin")]
REGISTERED = [v for v in OWN if v != "tuned"]  # which chooses among the others


@pytest.fixture(params=EAGER)
def fn(request):
    return load("add", request.param)


@pytest.fixture(params=OWN)
def own(request):
    return load("add", request.param)


def randn(*shape, dtype=torch.float32):
    generator = torch.Generator(DEVICE).manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device=DEVICE).to(dtype)


def whole(*shape, dtype=torch.int64):
    return torch.arange(torch.Size(shape).numel(), device=DEVICE, dtype=dtype).reshape(shape) * 3 - 7


def assert_right(fn, a, b):
    """torch.add's dtype, shape and strides; its very values, or near float64's where half types round."""
    got, expected = fn(a, b), torch.add(a, b)
    assert (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
    if expected.element_size() == 2:
        a, b = (x.double() if isinstance(x, torch.Tensor) else x for x in (a, b))
        expected = torch.add(a, b)
        assert compare(got, expected, got.dtype, str(got.device), "elementwise").reason == ""
    else:
        assert torch.equal(got, expected)


BROADCASTS = {
    "column + row": lambda: (randn(33, 1), randn(1, 31)),
    "row + column": lambda: (randn(1, 31), randn(33, 1)),
    "matrix + row": lambda: (randn(33, 31), randn(31)),
    "column + matrix": lambda: (randn(33, 1), randn(33, 31)),
    "0-dim + matrix": lambda: (randn(), randn(3, 5)),
    "matrix + number": lambda: (randn(3, 5), 2.5),
    "integers + number": lambda: (whole(3, 5), 2.5),
    "0-dim + 0-dim": lambda: (whole(), whole()),
    "four dims": lambda: (randn(2, 1, 4, 1), randn(1, 3, 1, 5)),
    "dims that merge": lambda: (randn(2, 3, 2, 3, 2, 3), randn(3)),
    "empty": lambda: (randn(0, 8), randn(1, 8)),
    "empty by broadcast": lambda: (randn(3, 1), randn(1, 0)),
}


@pytest.mark.parametrize("case", BROADCASTS)
def test_broadcasts(fn, case):
    assert_right(fn, *BROADCASTS[case]())


@pytest.mark.parametrize("n", [0, 1, 1023, 1025, 40000])
def test_sizes(fn, n):
    assert_right(fn, randn(n), randn(n).flip(0))


PROMOTIONS = [
    (torch.bfloat16, torch.float32, torch.float32),
    (torch.int64, torch.float32, torch.float32),
    (torch.float16, torch.bfloat16, torch.float32),
    (torch.int32, torch.int64, torch.int64),
    (torch.int64, torch.float16, torch.float16),
    (torch.float32, torch.float64, torch.float64),
    (torch.bfloat16, torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16, torch.float16),
    (torch.int32, torch.int32, torch.int32),
]


@pytest.mark.parametrize(("left", "right", "result"), PROMOTIONS, ids=lambda d: str(d).removeprefix("torch."))
def test_promotes(fn, left, right, result):
    a, b = (randn(7, 9).mul(4).to(dtype) for dtype in (left, right))
    assert fn(a, b).dtype == fn(b, a).dtype == result
    assert_right(fn, a, b)
    assert_right(fn, b, a[:1])


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_vector_outranks_a_0_dim_tensor(fn, dtype, kind):
    scalar = torch.tensor(3.1, device=DEVICE).to(kind)
    assert fn(randn(5, dtype=dtype), scalar).dtype == dtype
    assert_right(fn, randn(5, dtype=dtype), scalar)
    assert_right(fn, scalar, randn(5, dtype=dtype))


def test_int64_is_rounded_once(fn):
    a = torch.tensor([2**24 + 1, 2**40 + 1, -(2**62)], device=DEVICE)
    assert_right(fn, a, torch.tensor([1.0, 0.5, 2.0], device=DEVICE))


LAYOUTS = {
    "strided columns": lambda: (randn(33, 62)[:, ::2], randn(33, 31)),
    "both strided": lambda: (randn(33, 62)[:, ::2], randn(33, 93)[:, ::3]),
    "transposed": lambda: (randn(31, 33).t(), randn(31, 33).t()),
    "one transposed": lambda: (randn(33, 31), randn(31, 33).t()),
    "permuted": lambda: (randn(4, 5, 6).permute(2, 0, 1), randn(6, 4, 5)),
    "permuted and broadcast": lambda: (randn(4, 5, 6).permute(2, 0, 1), randn(6, 1, 5)),
    "expanded": lambda: (randn(5, 1).expand(5, 7), randn(5, 7)),
    "misaligned": lambda: (randn(1025, dtype=torch.bfloat16)[1:], randn(1025, dtype=torch.bfloat16)[1:]),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_layouts(fn, case):
    assert_right(fn, *LAYOUTS[case]())


def test_infinities_and_nan(fn):
    inf, nan = float("inf"), float("nan")
    a = torch.tensor([inf, inf, -inf, nan, 1.0], device=DEVICE)
    got, expected = fn(a, a.flip(0)), a + a.flip(0)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_own_refuses_what_it_cannot_do(own):
    with pytest.raises(NotImplementedError, match=r"^add\.\w+ takes 4 dims that do not merge, not 5\.$"):
        own(randn(2, 1, 2, 1, 2), randn(1, 2, 1, 2, 1))
    with pytest.raises(NotImplementedError, match=r"^add\.\w+ has no kernel for torch\.complex64\.$"):
        own(randn(3).to(torch.complex64), randn(3))
    with pytest.raises(NotImplementedError, match=r"^add\.\w+ has no kernel for torch\.bool\.$"):
        own(randn(3) > 0, randn(3))
    with pytest.raises(RuntimeError, match=r"[Bb]roadcast|[Mm]ismatch"):
        own(randn(3), randn(4))


GRADIENTS = [
    *(c for c in BROADCASTS if "number" not in c and c != "0-dim + 0-dim"),
    "scalar",
    "odd rows",
    "tall",
]
MORE = {
    "scalar": lambda: (randn(1), randn(40, 50)),
    "odd rows": lambda: (randn(7, 1, 5), randn(3, 1)),
    "tall": lambda: (randn(20000, 3), randn(3)),
}


def gradients(fn, a, b, upstream):
    leaves = [x.detach().requires_grad_() for x in (a, b)]
    return torch.autograd.grad(fn(*leaves), leaves, upstream)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients(fn, case, dtype):
    a, b = (x.to(dtype) for x in {**BROADCASTS, **MORE}[case]())
    upstream = randn(*torch.broadcast_shapes(a.shape, b.shape)).abs().to(dtype)  # no sum cancels
    expected = gradients(torch.add, a.double(), b.double(), upstream.double())
    for got, right, leaf in zip(gradients(fn, a, b, upstream), expected, (a, b), strict=True):
        assert (got.shape, got.dtype) == (leaf.shape, dtype)
        assert compare(got, right, dtype, str(got.device), "elementwise").reason == ""


def test_gradients_in_each_operands_dtype(fn):
    a, b = randn(6, 5).bfloat16(), randn(1, 5)
    upstream = randn(5, 6).t()
    got = gradients(fn, a, b, upstream)
    assert [g.dtype for g in got] == [torch.bfloat16, torch.float32]
    torch.testing.assert_close(got[0], upstream.bfloat16())
    torch.testing.assert_close(got[1], upstream.sum(0, keepdim=True))


def test_gradient_of_an_expanded_upstream(fn):
    got = gradients(fn, randn(4, 3), randn(3), torch.ones((), device=DEVICE).expand(4, 3))
    assert got[0].tolist() == [[1.0] * 3] * 4
    assert got[1].tolist() == [4.0] * 3


def test_a_gradient_without_a_broadcast_is_the_upstream_itself(fn):
    upstream = randn(3, 5)
    for got in gradients(fn, randn(3, 5), randn(3, 5), upstream):
        assert got.data_ptr() == upstream.data_ptr()


def test_own_gradient_has_the_same_bits_each_time(own):
    upstream = randn(3000, 70)
    first, second = (gradients(own, randn(3000, 70), randn(70), upstream)[1] for _ in range(2))
    assert torch.equal(first, second)


def test_own_second_derivative(own):
    a, b = randn(4, 3).double().requires_grad_(), randn(3).double().requires_grad_()
    torch.autograd.gradgradcheck(own, (a, b))


# What an own operator takes besides the operands and the dtype: how its launch is cut.
HOW = {"triton_unroll": (1024, 4), "cuda_vector": (2, 128)}


@pytest.mark.parametrize("variant", REGISTERED)
def test_opcheck(variant):
    load("add", variant)
    op, forward, total = (
        getattr(torch.ops.kernels, f"add_{variant}{end}") for end in ("", "_forward", "_sum")
    )
    how = HOW.get(variant, ())
    samples = [
        (randn(3, 5).requires_grad_(), randn(5).requires_grad_(), torch.float32, *how),
        (whole(7), randn(7).requires_grad_(), torch.float32, *how),
        (randn(4, 5, 6).permute(2, 0, 1), randn(6, 1, 5), torch.float32, *how),
    ]
    for sample in samples:
        torch.library.opcheck(op, sample)
        torch.library.opcheck(
            forward, tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in sample)
        )
    torch.library.opcheck(total, (randn(2, 3, 5), 2, 3, 5, torch.float32))


@pytest.mark.parametrize("variant", ["cpp", "cuda_thread", "cuda_vector"])
def test_operator_refuses_what_it_would_misread(variant):
    load("add", variant)
    op = getattr(torch.ops.kernels, f"add_{variant}_forward")
    with pytest.raises(RuntimeError, match=r"^a and b have shapes that do not broadcast\.$"):
        op(randn(3), randn(4), torch.float32, *HOW.get(variant, ()))
    total = getattr(torch.ops.kernels, f"add_{variant}_sum")
    for grad in (randn(5, 3).t(), randn(4, 5)):
        with pytest.raises(RuntimeError, match=r"^grad must be contiguous, with outer \* reduce \* inner"):
            total(grad, 1, 3, 5, torch.float32)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.gpu)])
def test_own_under_compile(own, backend):
    torch._dynamo.reset()
    step = torch.compile(lambda a, b: own(a * 2, b) - 1, fullgraph=True, backend=backend)
    for a, b in [(randn(6, 5).t(), randn(6)), (whole(4, 3), randn(3))]:
        torch.testing.assert_close(step(a, b), a * 2 + b - 1)


def test_compile():
    torch._dynamo.reset()
    fn = load("add", "compile")
    assert_right(fn, randn(33, 1, dtype=torch.bfloat16), randn(1, 31))
    assert_right(fn, whole(5, 6).t(), randn(5))


@pytest.mark.gpu
def test_beyond_2_to_31_elements(fn):
    """Flat, and with a stride for each of two dims."""
    flat = torch.empty(2**31 + 1026, dtype=torch.bfloat16, device=DEVICE).normal_()
    for a, b in [(flat, flat.flip(0)), (flat.view(-1, 2), randn(2)), (flat.view(2, -1), randn(2, 1))]:
        got, b = fn(a, b), b.expand(a.shape)
        for start in (0, 2**30, 2**31 - 2**20, 2**31 - 1, flat.numel() - 1025):
            piece = torch.arange(start, min(start + 2**20, flat.numel()), device=DEVICE)
            at = torch.unravel_index(piece, a.shape)
            right = a[at].double() + b[at].double()
            assert compare(got[at], right, got.dtype, str(got.device), "elementwise").reason == ""
