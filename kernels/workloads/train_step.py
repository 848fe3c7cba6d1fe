"""One training step of a small transformer, in plain PyTorch: forward, loss, backward, optimizer.

GeLU and the core of attention are arguments, so that a step can be made with each form of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int, gelu: Callable, attention: Callable) -> None:
        super().__init__()
        self.heads, self.gelu, self.attention = heads, gelu, attention
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (batch, tokens, width)
        q, k, v = self.qkv(self.before_attention(x)).chunk(3, dim=-1)
        split = (*q.shape[:2], self.heads, -1)
        q, k, v = (each.view(split).transpose(1, 2) for each in (q, k, v))  # (batch, heads, tokens, dim)
        mixed = self.attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        h = self.wide(self.before_mlp(x))
        h = self.gelu(h, approximate="tanh")
        return x + self.narrow(h)


class Model(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, vocab: int, tokens: int, **forms: Callable
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads, **forms) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:  # (batch, tokens)
        x = self.words(words) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


def make_step(
    device: str,
    gelu: Callable,
    attention: Callable,
    batch: int,
    tokens: int,
    width: int,
    heads: int,
    layers: int,
    vocab: int,
    dtype: str = "float32",
    print_every: int = 0,
    compile: bool = False,
    seed: int = 0,
) -> Callable[[], torch.Tensor]:
    """A callable that makes one step and returns the loss, a scalar on the device.

    `gelu(x, approximate=)` and `attention(q, k, v)` are called with (batch, tokens, 4 * width) and
    (batch, heads, tokens, width / heads). `print_every` prints the loss each so many steps; 0 never does.
    `compile` compiles the model; the optimizer stays as it is.
    """
    torch.manual_seed(seed)
    with torch.device(device):
        model = Model(layers, width, heads, vocab, tokens, gelu=gelu, attention=attention)
        words = torch.randint(vocab, (batch, tokens))
        wanted = torch.randint(vocab, (batch * tokens,))
    model = model.to(getattr(torch, dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    apply = torch.compile(model) if compile else model
    done = 0

    def step() -> torch.Tensor:
        nonlocal done
        scores = apply(words)
        loss = F.cross_entropy(scores.view(-1, vocab).float(), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if print_every and done % print_every == 0:
            print(f"step {done}: loss {loss}")
        return loss.detach()

    return step
