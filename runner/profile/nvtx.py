"""NVTX ranges for Nsight: run, case and variant around calls; forward, backward and optimizer inside a step.

Without a GPU there is nobody to read them, and they are left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Ranges:
    """Pushes and pops; `on` False keeps the order of calls and does nothing."""

    def __init__(self, on: bool) -> None:
        self.on = on
        self.depth = 0

    def push(self, name: str) -> None:
        self.depth += 1
        if self.on:
            torch.cuda.nvtx.range_push(name)

    def pop(self) -> None:
        self.depth -= 1
        if self.on:
            torch.cuda.nvtx.range_pop()

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        self.push(name)
        try:
            yield
        finally:
            self.pop()


@contextlib.contextmanager
def phases(ranges: Ranges) -> Iterator[None]:
    """A step: `forward` until a gradient is asked for, `backward` meanwhile, `optimizer` in its step.

    Works for any step: `torch.autograd.backward` (which `loss.backward()` calls) is wrapped for as long, and
    optimizers tell by their own hooks.
    """
    depth = ranges.depth
    ranges.push("forward")

    def enter(name: str) -> None:
        while ranges.depth > depth:
            ranges.pop()
        ranges.push(name)

    def leave() -> None:
        while ranges.depth > depth:
            ranges.pop()
        ranges.push("forward")

    backward = torch.autograd.backward
    torch.autograd.backward = _between(backward, lambda: enter("backward"), leave)
    hooks = [
        register_optimizer_step_pre_hook(lambda *_: enter("optimizer")),
        register_optimizer_step_post_hook(lambda *_: leave()),
    ]
    try:
        yield
    finally:
        torch.autograd.backward = backward
        for hook in hooks:
            hook.remove()
        while ranges.depth > depth:
            ranges.pop()


def _between(function: Callable, before: Callable[[], None], after: Callable[[], None]) -> Callable:
    def called(*args: Any, **kwargs: Any) -> Any:
        before()
        try:
            return function(*args, **kwargs)
        finally:
            after()

    return called
