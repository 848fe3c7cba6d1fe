"""Twelve ways to make the host wait for the device, each on a line that says so, and a clean loop."""

from __future__ import annotations

from pathlib import Path

import torch


def planted(device: str):
    """A step with all twelve."""
    x = torch.randn(512, 512, device=device)
    done = torch.cuda.Event()

    def step() -> None:
        y = x @ x
        total = y.sum()
        total.item()  # waits
        print(f"loss {total}")  # waits
        y.cpu()  # waits
        y[0].tolist()  # waits
        torch.nonzero(y > 0)  # waits
        y[y > 1]  # waits
        float(total)  # waits
        if total > 0:  # waits
            y = y + 1
        torch.cuda.synchronize()  # waits
        done.record()
        done.synchronize()  # waits
        torch.cuda.current_stream().synchronize()  # waits
        torch.tensor([1.0, 2.0], device=device)  # waits

    return step


def clean(device: str):
    """A step that never waits."""
    weight = torch.randn(512, 512, device=device, requires_grad=True)
    x = torch.randn(512, 512, device=device)
    optimizer = torch.optim.SGD([weight], lr=1e-3)

    def step() -> None:
        loss = (x @ weight).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def lines() -> list[int]:
    """The numbers of the lines that wait."""
    text = Path(__file__).read_text().splitlines()
    return [number for number, line in enumerate(text, 1) if line.endswith("  # waits")]
