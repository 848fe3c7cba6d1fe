"""GeLU on the inputs that break kernels: every variant is right, or refuses in one sentence."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import gelu as builtin

from runner.check import compare
from tests.support import DEVICE, load, variants

EAGER = [v for v in variants("gelu") if not v.startswith("compile")]
OWN = [v for v in EAGER if v not in ("naive", "builtin")]
REGISTERED = [v for v in OWN if v != "tuned"]  # which chooses among the others
FORMS = ["tanh", "none"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]

# Triton's interpreter computes with numpy, which warns of the overflow that the kernels are built for.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


@pytest.fixture(params=EAGER)
def fn(request):
    return load("gelu", request.param)


@pytest.fixture(params=OWN)
def own(request):
    return load("gelu", request.param)


# What an own operator takes besides x and the form: how its launch is cut.
HOW = {"triton_unroll": (1024, 4), "cuda_vector": (2, 128)}


@pytest.fixture(params=REGISTERED)
def op(request):
    """An own variant's operators (differentiable, forward, backward) and what they take last."""
    load("gelu", request.param)
    ops = [getattr(torch.ops.kernels, f"gelu_{request.param}{end}") for end in ("", "_forward", "_backward")]
    return *ops, HOW.get(request.param, ())


def gradient(fn, x, approximate, upstream):
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(fn(leaf, approximate=approximate), leaf, upstream)[0]


def assert_right(fn, x, approximate, upstream=None):
    """Forward and backward against float64's, at x and at the upstream gradient (ones when left out)."""
    g = torch.ones((), dtype=x.dtype, device=x.device).expand(x.shape) if upstream is None else upstream
    pairs = [
        (fn(x, approximate=approximate), builtin(x.double(), approximate=approximate)),
        (gradient(fn, x, approximate, g), gradient(builtin, x.double(), approximate, g.double())),
    ]
    for got, expected in pairs:
        assert compare(got, expected, x.dtype, str(x.device), "elementwise").reason == ""


def tensor(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def randn(*shape, dtype=torch.float32):
    generator = torch.Generator(DEVICE).manual_seed(0)
    return torch.randn(shape, generator=generator, device=DEVICE).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tanh_form_saturates(fn, dtype):
    y = fn(tensor([11.0, 100.0, -13.0], dtype), approximate="tanh").double()
    assert y[:2].tolist() == [11.0, 100.0]
    assert -1e-30 < y[2] <= 0 and math.copysign(1, y[2]) == -1


@pytest.mark.parametrize("approximate", FORMS)
def test_float16_gradient_at_256_is_one(fn, approximate):
    x = tensor([256.0], torch.float16)
    assert gradient(fn, x, approximate, torch.ones_like(x)).tolist() == [1.0]


@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_own_gradient_survives_the_square_of_x_overflowing(own, approximate, dtype):
    x = tensor([1e20, -1e20], dtype)
    assert gradient(own, x, approximate, torch.ones_like(x)).tolist() == [1.0, 0.0]


def test_the_two_forms_are_told_apart(fn):
    x = torch.linspace(-5, 5, 1001, device=DEVICE)
    outputs = {form: fn(x, approximate=form) for form in FORMS}
    apart = (outputs["tanh"] - outputs["none"]).abs().max().item()
    assert 4.6e-4 < apart < 4.8e-4
    for form, other in (FORMS, FORMS[::-1]):
        right = builtin(x.double(), approximate=form)
        assert compare(outputs[form], right, x.dtype, str(x.device), "elementwise").reason == ""
        assert compare(outputs[other], right, x.dtype, str(x.device), "elementwise").reason != ""


@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", EAGER)
def test_infinities_and_nan(variant, approximate, dtype):
    fn = load("gelu", variant)
    if (variant, approximate, DEVICE) == ("builtin", "none", "cpu") and dtype is not torch.float64:
        pytest.skip("PyTorch's vectorized CPU kernel itself returns NaN at +infinity in this form")
    assert_right(fn, tensor([math.inf, -math.inf, math.nan, 1.0, -0.0], dtype), approximate)


@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 1023, 1025])
def test_sizes(fn, n, dtype, approximate):
    assert_right(fn, randn(n, dtype=dtype), approximate, randn(n, dtype=dtype).flip(0))


@pytest.mark.parametrize("approximate", FORMS)
def test_misaligned(fn, approximate):
    assert_right(fn, randn(1025, dtype=torch.bfloat16)[1:], approximate)


LAYOUTS = {
    "transposed": lambda: randn(31, 33).t(),
    "strided": lambda: randn(33, 62)[:, ::2],
    "permuted": lambda: randn(4, 5, 6).permute(2, 0, 1),
    "expanded": lambda: randn(5, 1).expand(5, 7),
    "channels_last": lambda: randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "0-dim": lambda: randn(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(fn, layout):
    x = LAYOUTS[layout]()
    assert_right(fn, x, "tanh")
    turned = randn(*reversed(x.shape)).permute(tuple(reversed(range(x.dim()))))
    assert_right(fn, x, "tanh", turned)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_own_output_has_the_strides_of_torchs(own, layout):
    x = LAYOUTS[layout]()
    assert own(x).stride() == builtin(x).stride()


def test_own_refuses_integers_and_unknown_forms(own):
    with pytest.raises(
        NotImplementedError, match=r"^gelu\.\w+ has no kernel for torch\.int64: it takes .*\.$"
    ):
        own(torch.arange(3, device=DEVICE))
    with pytest.raises(ValueError, match="'tanh' or 'none', not 'tan'"):
        own(randn(3), approximate="tan")


def test_own_refuses_a_second_derivative(own):
    x = randn(3).requires_grad_()
    (first,) = torch.autograd.grad(own(x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="once, not twice"):
        first.sum().backward()


@pytest.mark.parametrize("layout", ["transposed", "strided", "permuted"])
def test_opcheck_forward(op, layout):
    for tanh in (True, False):
        torch.library.opcheck(op[0], (LAYOUTS[layout]().requires_grad_(), tanh, *op[-1]))
        torch.library.opcheck(op[1], (LAYOUTS[layout](), tanh, *op[-1]))


def test_opcheck_backward(op):
    torch.library.opcheck(op[2], (LAYOUTS["transposed"](), randn(33, 31), True, *op[-1]))


def test_backward_operator_refuses_a_gradient_of_another_shape(op):
    if op[0].__name__.startswith("gelu_triton"):
        pytest.skip("its gradient is reached through autograd, which checks the shape")
    with pytest.raises(RuntimeError, match=r"^grad and x differ in shape or dtype\.$"):
        op[2](randn(3), randn(4), True, *op[-1])


class Network(torch.nn.Module):
    def __init__(self, activation):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.activation = activation

    def forward(self, x):
        return self.last(self.activation(self.first(x).t().contiguous().t(), approximate="tanh"))


def trained(activation, compiler=None):
    """Gradients of all weights after one backward pass."""
    network = Network(activation).to(DEVICE)
    step = torch.compile(network, fullgraph=True, backend=compiler) if compiler else network
    step(randn(5, 8)).square().mean().backward()
    return [p.grad for p in network.parameters()]


@pytest.mark.parametrize("compiler", [None, "aot_eager", pytest.param("inductor", marks=pytest.mark.gpu)])
def test_own_in_a_model(own, compiler):
    torch._dynamo.reset()
    for got, expected in zip(trained(own, compiler), trained(builtin), strict=True):
        torch.testing.assert_close(got, expected)


def test_cpp_under_inductor():
    if DEVICE != "cpu":
        pytest.skip("C++ for the CPU")
    torch._dynamo.reset()
    for got, expected in zip(trained(load("gelu", "cpp"), "inductor"), trained(builtin), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("approximate", FORMS)
def test_compile(approximate):
    torch._dynamo.reset()
    fn = load("gelu", "compile")
    values = [11.0, 100.0, -13.0, 256.0, 0.5, -0.5, math.nan, -math.inf]
    assert_right(fn, tensor(values, torch.float16), approximate)


@pytest.mark.gpu
@pytest.mark.parametrize("approximate", FORMS)
def test_beyond_2_to_31_elements(fn, approximate):
    x = torch.empty(2**31 + 1025, dtype=torch.bfloat16, device=DEVICE).normal_()
    y, dx = fn(x, approximate=approximate), gradient(fn, x, approximate, x)
    for at in (0, 2**30, 2**31 - 2**20, 2**31 - 1, 2**31 + 1):
        piece = slice(at, at + 2**20)
        part = x[piece].double()
        for got, expected in (
            (y[piece], builtin(part, approximate=approximate)),
            (dx[piece], gradient(builtin, part, approximate, part)),
        ):
            assert compare(got, expected, x.dtype, str(x.device), "elementwise").reason == ""
