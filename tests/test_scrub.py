"""No right answer is left where another variant, which has the same inputs, could find it."""

from types import SimpleNamespace

import pytest
import torch

from runner.check import exchange, poison, prove
from runner.model import HOST


def opened(x):
    one = prove.OpenCase(SimpleNamespace(inputs=(), device="cpu"), None)
    one.grad_positions, one.inputs = (), [x]
    return one


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_an_output_that_nobody_needs_any_more_holds_no_answer(dtype):
    x = torch.ones(4, 6).to(dtype)
    with torch.inference_mode():
        outputs = [x + x, (x + x).t(), (x + x)[:, 1:3]]
    for output in outputs:
        opened(x).scrub(output)
        assert bool((output.isnan() if dtype.is_floating_point else output == -1).all())


def test_an_output_that_lies_in_an_input_is_left():
    x = torch.randn(4, 6)
    opened(x).scrub(x.t()[1:])
    assert bool(x.isfinite().all())


def test_a_block_that_the_system_takes_back_is_left():
    assert poison.comes_again(32 << 20, "cpu") and poison.comes_again(1 << 40, "cuda:0")
    assert not poison.comes_again((32 << 20) + 1, "cpu")


def test_what_was_judged_is_wiped():
    outbox = exchange.Outbox("cpu", HOST, [exchange.Part((3, 5), torch.float32)])
    try:
        outbox.put([torch.ones(3, 5)])
        assert not outbox.differs([torch.ones(3, 5)])
        outbox.wipe()
        assert bool(outbox._copies[0].isnan().all())
    finally:
        outbox.close()
