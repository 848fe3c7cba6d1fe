"""What several test files share: the variants of an op as callables."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
import yaml

from runner.model import Variant

ROOT = Path(__file__).resolve().parent.parent
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def variants(op: str) -> list[str]:
    """Names of an op's variants, as its YAML lists them."""
    return list(yaml.safe_load((ROOT / "conf" / "op" / f"{op}.yaml").read_text())["variants"])


@functools.cache
def declared(op: str, variant: str, device: str) -> Variant:
    from runner.config import compose

    return compose([f"op={op}", f"variant={variant}", f"device={device}"]).op.variants[variant]


def load(op: str, variant: str, device: str = DEVICE):
    """A built variant; skips the test where it cannot run on this device."""
    one = declared(op, variant, device)
    if one.language == "cuda" and device == "cpu":
        pytest.skip("CUDA C++ needs a GPU")
    if one.language == "cpp" and device != "cpu":
        pytest.skip("C++ for the CPU")
    return _built(op, variant, device)


@functools.cache
def _built(op: str, variant: str, device: str):
    import tempfile

    from runner.build import build

    return build(declared(op, variant, device), device, Path(tempfile.mkdtemp())).fn
