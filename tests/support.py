"""What several test files share: the variants of an op as callables."""

from __future__ import annotations

import dataclasses
import functools
import os
import types
from pathlib import Path

import pytest
import torch
import yaml

from runner.check import definition
from runner.check.bounds import bound
from runner.model import Variant

ROOT = Path(__file__).resolve().parent.parent
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def variants(op: str) -> list[str]:
    """Names of an op's variants, as its YAML lists them; other projects' (peers) answer for themselves."""
    declared = yaml.safe_load((ROOT / "conf" / "op" / f"{op}.yaml").read_text())["variants"]
    return [name for name, variant in declared.items() if variant.get("group") != "peer"]


def compare(out, expected: torch.Tensor, dtype: torch.dtype, device: str, accuracy: str) -> definition.Errors:
    """An output against its reference in float64, as a run does it: first its kind, then its values."""
    if fault := definition.kind_fault(out, expected.shape, dtype, device):
        return definition.Errors(reason=fault)
    return definition.compare(out, definition.Expected(expected, dtype), bound(dtype, accuracy))


@functools.cache
def declared(op: str, variant: str, device: str) -> Variant:
    from runner.config.compose import compose

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

    from runner.build.variant import build

    return build(declared(op, variant, device), device, Path(tempfile.mkdtemp())).fn


class Bench:
    """A check as the worker and the judge make it between them, both in this process."""

    def __init__(self, planned, seed: int = 1) -> None:
        from runner.check.exchange import Outbox
        from runner.check.judge import Judge
        from runner.check.prove import OpenCase
        from runner.model import HOST
        from runner.parent.judging import Judging

        self._judge, self.pid = Judge(None), os.getpid()
        self._judge.hello(planned.case.device, 0)
        self._case = OpenCase(planned.case, functools.partial(Outbox, planned.case.device, HOST))
        self.judging = Judging(self, planned)
        self.settings = types.SimpleNamespace(seed=seed)
        self.usable = True

    def prove(self, entry, fn) -> dict:
        """The verdict's facts on the case itself."""
        from runner.check.prove import prove

        def judged(position, outbox, call):
            told = {"index": entry.index, "position": position, "place": outbox.place, "fault": ""}
            return self.judging._look(self, told | {"round": None, "call": call})

        whole = dataclasses.replace(entry, interpreted=False)  # on this case, not on the smaller ones
        self._case.draw(**self.judging.draws(whole)[0])
        return self.judging.verdict(whole, prove({0: self._case}, entry, fn, judged).facts)

    def close(self) -> None:
        """Give back the memory, and the descriptors, that the outputs went through."""
        self._case.close()
        self._judge.close()

    def judge(self):
        return self

    def ask(self, name, **arguments):
        return getattr(self._judge, name)(**arguments)
